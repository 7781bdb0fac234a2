//! `ETag` and `If-Match`: a change is made only to the version that the client has seen.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{NOWHERE, path_of};
use crate::support::locks::HeldRow;
use crate::support::{App, Options, Reply};

/// Sends a request with these lines of `If-Match`.
async fn send(app: &App, method: Method, path: &str, if_match: &[&str], body: Option<Value>) -> Reply {
    let mut request = app.client.request(method, format!("{}{path}", app.base));
    for line in if_match {
        request = request.header("if-match", *line);
    }
    if let Some(body) = body {
        request = request.json(&body);
    }
    Reply::of(request.send().await.expect("a response")).await
}

async fn rename(app: &App, path: &str, if_match: &[&str]) -> Reply {
    send(app, Method::PATCH, path, if_match, Some(json!({"name": "renamed"}))).await
}

async fn version(app: &App, path: &str) -> Value {
    app.get(path).await.expect(200).json()["version"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_about_a_subscription_has_its_version_as_etag() {
    let app = App::start().await;
    let created = app.post("/subscriptions", &json!({"url": NOWHERE})).await.expect(201);
    assert_eq!(created.header("etag"), Some("\"1\""));
    let path = path_of(&created.json());
    assert_eq!(app.get(&path).await.header("etag"), Some("\"1\""));
    assert_eq!(app.patch(&path, &json!({"name": "a"})).await.expect(200).header("etag"), Some("\"2\""));
    let rotated = app.post(&format!("{path}/rotate-secret"), &json!({})).await.expect(200);
    assert_eq!((rotated.header("etag"), &rotated.json()["version"]), (Some("\"3\""), &json!(3)));
    let resumed = app.post_empty(&format!("{path}/resume")).await.expect(200);
    assert_eq!((resumed.header("etag"), &resumed.json()["version"]), (Some("\"3\""), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_to_another_version_is_refused_and_changes_nothing() {
    let app = App::start().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    let path = path_of(&subscription);
    let rotate = format!("{path}/rotate-secret");
    rename(&app, &path, &["\"1\""]).await.expect(200);
    let before = app.get(&path).await.expect(200).json();
    for stale in [
        rename(&app, &path, &["\"1\""]).await,
        send(&app, Method::POST, &rotate, &["\"1\""], Some(json!({}))).await,
        send(&app, Method::DELETE, &path, &["\"1\""], None).await,
    ] {
        let problem = stale.problem(412, "precondition_failed");
        assert!(problem["detail"].as_str().expect("a detail").contains("version 2"), "{problem}");
    }
    assert_eq!(app.get(&path).await.expect(200).json(), before);
    let secrets = "SELECT count(*) FROM waybill.subscription_secrets";
    assert_eq!(app.count(secrets).await, 1, "the secret was not rotated");
    send(&app, Method::POST, &rotate, &["\"2\""], Some(json!({}))).await.expect(200);
    send(&app, Method::DELETE, &path, &["\"3\""], None).await.expect(204);
    send(&app, Method::DELETE, &path, &["\"3\""], None).await.problem(404, "subscription_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_may_be_a_star_or_a_list_and_weak_tags_never_match() {
    let app = App::start().await;
    let path = path_of(&app.subscribe(NOWHERE, json!({})).await);
    let refused: [&[&str]; 5] = [&["W/\"1\""], &["\"2\""], &["\"01\""], &["\"one\", W/\"1\""], &["\"7\"", "\"8\""]];
    for lines in refused {
        rename(&app, &path, lines).await.problem(412, "precondition_failed");
    }
    assert_eq!(version(&app, &path).await, 1);
    let accepted: [&[&str]; 4] = [&["*"], &["\"9\", \"2\""], &["\"9\"", "W/\"1\",\"3\""], &[]];
    for (lines, after) in accepted.into_iter().zip(2..) {
        assert_eq!(rename(&app, &path, lines).await.expect(200).json()["version"], after);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_if_match_is_refused() {
    let app = App::start().await;
    let path = path_of(&app.subscribe(NOWHERE, json!({})).await);
    let malformed: [&[&str]; 7] =
        [&["1"], &[""], &["\"1"], &["\"1\" \"2\""], &["w/\"1\""], &["*", "\"1\""], &["\"1\", *"]];
    for lines in malformed {
        rename(&app, &path, lines).await.names(&["If-Match"]);
        send(&app, Method::DELETE, &path, lines, None).await.names(&["If-Match"]);
        let rotate = format!("{path}/rotate-secret");
        send(&app, Method::POST, &rotate, lines, Some(json!({}))).await.names(&["If-Match"]);
    }
    assert_eq!(version(&app, &path).await, 1);
}

/// The row is locked until the changes of both servers wait for it, so none of them can finish before the others
/// have begun.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_changes_to_one_version_one_is_made() {
    let app = App::start().await;
    let other = App::start_with(Options { url: Some(app.url.clone()), ..Options::default() }).await;
    let path = path_of(&app.subscribe(NOWHERE, json!({})).await);
    let held = HeldRow::with_uncommitted(&app, "SELECT 1 FROM waybill.subscriptions FOR UPDATE").await;
    let name = |n: usize| json!({"name": format!("change {n}")});
    let changes = join_all((0..8).map(|n| {
        let server = if n % 2 == 0 { &app } else { &other };
        send(server, Method::PATCH, &path, &["\"1\""], Some(name(n)))
    }));
    let (replies, ()) = tokio::join!(changes, async {
        app.until_blocked_calls(2).await;
        held.unlock().await;
    });
    let made: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 200).collect();
    let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!((made.len(), statuses.iter().filter(|status| **status == 412).count()), (1, 7), "{statuses:?}");
    let view = app.get(&path).await.expect(200).json();
    assert_eq!((&view["version"], &view["name"]), (&json!(2), &made[0].json()["name"]));
}
