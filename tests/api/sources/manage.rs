//! Sources are listed, changed and deleted.

use reqwest::Method;
use serde_json::{Value, json};

use super::{SECRET, github_source, path_of, send_as_github};
use crate::support::{App, Reply};

#[tokio::test(flavor = "multi_thread")]
async fn sources_are_listed_in_pages_and_by_their_state() {
    let app = App::start().await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let fields = json!({"verify": {"scheme": "none"}, "is_active": n != 1});
        ids.push(app.source(fields).await["id"].clone());
    }
    let list = async |query: &str| app.get(&format!("/sources?{query}")).await.expect(200).json();
    let ids_of = |page: &Value| -> Vec<Value> {
        page["sources"].as_array().expect("sources").iter().map(|source| source["id"].clone()).collect()
    };
    assert_eq!(ids_of(&list("").await), ids);
    assert_eq!(ids_of(&list("is_active=false").await), ids[1..2]);
    assert_eq!(ids_of(&list("order=desc&limit=1").await), ids[2..]);
    let first = list("limit=2").await;
    let next = first["next"].as_str().expect("a cursor");
    assert_eq!(ids_of(&list(&format!("after={next}")).await), ids[2..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_takes_effect_for_the_next_webhook() {
    let app = App::start().await;
    let source = github_source(&app).await;
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    let changes =
        json!({"tags": ["ci"], "event_type_from": {"value": "git"}, "respond": {"status": 200, "body": "ok"}});
    let changed = app.patch(&path_of(&source), &changes).await.expect(200);
    assert_eq!(changed.header("etag"), Some("\"2\""));
    let changed = changed.json();
    assert_eq!((&changed["version"], &changed["tags"]), (&json!(2), &json!(["ci"])));
    assert_eq!(changed["path"], source["path"]);
    let reply = send_as_github(&app, &source, SECRET, "{}").await.expect(200);
    assert_eq!((reply.text.as_str(), reply.header("content-type")), ("ok", Some("text/plain; charset=utf-8")));
    let events = app.all_events().await;
    assert_eq!((&events[0]["event_type"], &events[0]["tags"]), (&json!("push"), &json!("")));
    assert_eq!((&events[1]["event_type"], &events[1]["tags"]), (&json!("git"), &json!("ci")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_disabled_or_deleted_is_not_found_by_its_sender() {
    let app = App::start().await;
    let source = github_source(&app).await;
    let path = path_of(&source);
    app.patch(&path, &json!({"is_active": false})).await.expect(200);
    send_as_github(&app, &source, SECRET, "{}").await.problem(404, "source_not_found");
    app.patch(&path, &json!({"is_active": true})).await.expect(200);
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    app.delete(&path).await.expect(204);
    send_as_github(&app, &source, SECRET, "{}").await.problem(404, "source_not_found");
    app.get(&path).await.problem(404, "source_not_found");
    assert_eq!(app.stored_events().await, 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.source_secrets").await, 0);
}

async fn send(app: &App, method: Method, path: &str, if_match: &str, body: Option<Value>) -> Reply {
    let request = app.client.request(method, format!("{}{path}", app.base)).header("if-match", if_match);
    let request = body.iter().fold(request, reqwest::RequestBuilder::json);
    Reply::of(request.send().await.expect("a response")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_to_another_version_is_refused_and_changes_nothing() {
    let app = App::start().await;
    let source = github_source(&app).await;
    let (path, rotate) = (path_of(&source), format!("{}/rotate-secret", path_of(&source)));
    let new_secret = || Some(json!({"secret": "another"}));
    send(&app, Method::PATCH, &path, "\"1\"", Some(json!({"name": "b"}))).await.expect(200);
    let before = app.get(&path).await.expect(200).json();
    for stale in [
        send(&app, Method::PATCH, &path, "\"1\"", Some(json!({"name": "c"}))).await,
        send(&app, Method::POST, &rotate, "\"1\"", new_secret()).await,
        send(&app, Method::DELETE, &path, "\"1\"", None).await,
    ] {
        let problem = stale.problem(412, "precondition_failed");
        let expected = format!("source {} has version 2", source["id"]);
        assert!(problem["detail"].as_str().expect("a detail").contains(&expected), "{problem}");
    }
    assert_eq!(app.get(&path).await.expect(200).json(), before);
    send(&app, Method::POST, &rotate, "\"2\"", new_secret()).await.expect(200);
    send(&app, Method::DELETE, &path, "\"3\"", None).await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_namespaces_do_not_see_each_others_sources() {
    let app = App::start().await;
    let (north, south) = (app.namespace("north").await, app.namespace("south").await);
    let source = github_source(&north).await;
    let path = path_of(&source);
    south.get(&path).await.problem(404, "source_not_found");
    south.patch(&path, &json!({"name": "mine"})).await.problem(404, "source_not_found");
    let rotation = json!({"secret": "mine"});
    south.post(&format!("{path}/rotate-secret"), &rotation).await.problem(404, "source_not_found");
    south.delete(&path).await.problem(404, "source_not_found");
    assert_eq!(south.get("/sources").await.expect(200).json()["sources"], json!([]));
    // The token alone says which namespace a webhook is for.
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    assert_eq!(north.only_event().await["event_type"], "push");
    assert_eq!((south.all_events().await.len(), app.all_events().await.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_in_the_audit_log_without_secrets() {
    let app = App::with_keys().await;
    let source = github_source(&app).await;
    let path = path_of(&source);
    app.patch(&path, &json!({"name": "renamed", "is_active": false})).await.expect(200);
    app.post(&format!("{path}/rotate-secret"), &json!({"secret": "n3w", "overlap_seconds": 60})).await.expect(200);
    app.delete(&path).await.expect(204);
    let entries = app.get("/audit").await.expect(200).json()["entries"].as_array().expect("entries").clone();
    let about_sources: Vec<&Value> = entries.iter().filter(|entry| entry["subject"]["kind"] == "source").collect();
    let actions: Vec<&str> = about_sources.iter().map(|entry| entry["action"].as_str().expect("an action")).collect();
    assert_eq!(actions, ["source.created", "source.updated", "source.secret_rotated", "source.deleted"]);
    for entry in &about_sources {
        assert_eq!((&entry["subject"]["id"], &entry["actor"]), (&source["id"], &json!("the admin")));
        let text = entry.to_string();
        for secret in [SECRET, "n3w", source["path"].as_str().expect("a path").trim_start_matches("/in/")] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    assert_eq!(about_sources[0]["detail"]["settings"]["verify"]["scheme"], "github");
    let changes = json!({
        "name": {"from": "our repository", "to": "renamed"}, "is_active": {"from": true, "to": false},
    });
    assert_eq!(about_sources[1]["detail"], json!({"version": 2, "changes": changes}));
    assert_eq!(about_sources[2]["detail"], json!({"version": 3, "overlap_seconds": 60.0}));
}
