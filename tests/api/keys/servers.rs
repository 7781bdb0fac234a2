//! Several servers on one database, and requests that wait while their key ends.

use futures_util::future::join;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::keys::MadeKey;
use crate::support::{App, Options, Reply, until, within_patience};

async fn two_servers(flags: &str) -> (App, App) {
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let one = App::start_with(Options { flags: flags.clone(), ..Options::default() }).await;
    let other = App::start_with(Options { flags, url: Some(one.url.clone()), ..Options::default() }).await;
    (one, other)
}

/// Two servers that learn of each other by `NOTIFY` and not by polling.
async fn two_listening_servers() -> (App, App) {
    let servers = two_servers("--poll-interval-ms 60000").await;
    servers.0.until_listening(2).await;
    servers
}

/// A worker that waits for an event on `server` with a key, or without one.
async fn wait_for_event(server: &App, holder: &App) -> JoinHandle<Reply> {
    let url = format!("{}/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60", server.base);
    let request = holder.client.get(url);
    let before = server.engine().hub().len();
    let waiting = tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await });
    until("it waits", async || server.engine().hub().asleep() == before + 1).await;
    waiting
}

async fn revoke(app: &App, key: &MadeKey) {
    app.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_reaches_the_other_server_and_the_worker_that_waits_there() {
    let (one, other) = two_listening_servers().await;
    let one = one.with_admin_key().await;
    let worker = one.make_key(json!({"scopes": ["work"]})).await;
    until("the other requires keys", async || other.engine().keys().is_required()).await;
    let waiting = wait_for_event(&other, &one.holding(&worker)).await;
    revoke(&one, &worker).await;
    within_patience(waiting).await.expect("no panic").problem(401, "key_revoked");
    let on_other = App { base: other.base.clone(), ..one.holding(&worker) };
    on_other.get("/events/subscribe?tags=a&worker_id=w:1").await.problem(401, "key_revoked");
    // Nothing is claimed for the worker that has gone.
    let id = one.publish_tagged("a").await;
    assert_eq!(one.actions(id).await, [""; 0]);
    assert!(other.engine().hub().is_empty());
}

/// The counterpart of the test above: the notification is all that could have told the other server. Without it, the
/// key is good there and its worker waits, until the server asks the database.
#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_a_revocation_is_not_known_before_the_next_poll() {
    let (one, other) = two_servers("--poll-interval-ms 60000 --notify false").await;
    let one = one.with_admin_key().await;
    let worker = one.make_key(json!({"scopes": ["work"]})).await;
    other.engine().refresh_keys().await.expect("the database answers");
    let waiting = wait_for_event(&other, &one.holding(&worker)).await;
    revoke(&one, &worker).await;
    let on_other = App { base: other.base.clone(), ..one.holding(&worker) };
    on_other.get("/events/subscribe?tags=b&worker_id=w:1").await.expect(204);
    assert!(!waiting.is_finished() && other.engine().hub().asleep() == 1);
    other.engine().refresh_keys().await.expect("the database answers");
    within_patience(waiting).await.expect("no panic").problem(401, "key_revoked");
    on_other.get("/events/subscribe?tags=b&worker_id=w:1").await.problem(401, "key_revoked");
}

/// What a key makes or changes outlives it. So a server that has not heard of a revocation yet asks the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_revoked_on_another_server_makes_and_changes_no_keys() {
    let (one, other) = two_servers("--poll-interval-ms 60000 --notify false").await;
    let one = one.with_admin_key().await;
    let (leaked, worker) =
        (one.make_key(json!({"scopes": ["admin"]})).await, one.make_key(json!({"scopes": ["work"]})).await);
    other.engine().refresh_keys().await.expect("the database answers");
    let on_other = App { base: other.base.clone(), ..one.holding(&leaked) };
    on_other.get("/keys").await.expect(200);
    revoke(&one, &leaked).await;
    on_other.get("/keys").await.expect(200);
    on_other.post("/keys", &json!({"name": "another", "scopes": ["admin"]})).await.problem(401, "key_revoked");
    on_other.post_empty(&format!("/keys/{}/rotate", worker.id)).await.problem(401, "key_revoked");
    on_other.post_empty(&format!("/keys/{}/revoke", worker.id)).await.problem(401, "key_revoked");
    let rate = json!({"publishes_per_second": 1});
    on_other.patch(&format!("/keys/{}", worker.id), &rate).await.problem(401, "key_revoked");
    let keys = one.get("/keys").await.expect(200).json();
    let names: Vec<&str> =
        keys["keys"].as_array().expect("keys").iter().filter_map(|key| key["name"].as_str()).collect();
    assert!(names.len() == 3 && !names.contains(&"another"), "{keys}");
    one.holding(&worker).get("/events/subscribe?tags=a&worker_id=w:1").await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_know_of_the_first_key_yet_makes_no_second_one_for_strangers() {
    let (one, other) = two_servers("--poll-interval-ms 60000 --notify false").await;
    one.with_admin_key().await;
    assert!(!other.engine().keys().is_required());
    let stranger = json!({"name": "a stranger's", "scopes": ["admin"]});
    other.as_stranger().post("/keys", &stranger).await.problem(401, "unauthenticated");
    assert_eq!(other.count("SELECT count(*) FROM waybill.api_keys").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_poll_alone_finds_a_revocation_and_the_first_key() {
    let (one, other) = two_servers("--poll-interval-ms 10 --notify false").await;
    let anonymous = wait_for_event(&other, &other.as_stranger()).await;
    let one = one.with_admin_key().await;
    within_patience(anonymous).await.expect("no panic").problem(401, "unauthenticated");
    other.as_stranger().get("/events").await.problem(401, "unauthenticated");
    let worker = one.make_key(json!({"scopes": ["work"]})).await;
    let waiting = wait_for_event(&other, &one.holding(&worker)).await;
    revoke(&one, &worker).await;
    within_patience(waiting).await.expect("no panic").problem(401, "key_revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_closes_an_open_server_and_is_good_there_at_once() {
    let (one, other) = two_listening_servers().await;
    other.as_stranger().get("/events").await.expect(200);
    let anonymous = wait_for_event(&other, &other.as_stranger()).await;
    let one = one.with_admin_key().await;
    within_patience(anonymous).await.expect("no panic").problem(401, "unauthenticated");
    until("the other is closed", async || other.as_stranger().get("/events").await.status == 401).await;
    let on_other = App { server: None, url: other.url.clone(), base: other.base.clone(), client: one.client.clone() };
    on_other.get("/events").await.expect(200);
    // A key that was just made is known to the other before any notification: it asks the database.
    let reader = one.make_key(json!({"scopes": ["read"]})).await;
    App { base: other.base.clone(), ..one.holding(&reader) }.get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_under_a_secret_that_is_replaced_at_once_is_sent_away() {
    let app = App::with_keys().await;
    let worker = app.make_key(json!({"scopes": ["work"]})).await;
    let waiting = wait_for_event(&app, &app.holding(&worker)).await;
    app.post(&format!("/keys/{}/rotate", worker.id), &json!({"overlap_seconds": 0})).await.expect(200);
    within_patience(waiting).await.expect("no panic").problem(401, "key_expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_while_its_key_expires_is_sent_away() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let soon = app.now() + chrono::TimeDelta::seconds(30);
    let worker = app.make_key(json!({"scopes": ["work"], "expires_at": soon})).await;
    let waiting = wait_for_event(&app, &app.holding(&worker)).await;
    app.advance(30);
    app.engine().refresh_keys().await.expect("the database answers");
    within_patience(waiting).await.expect("no panic").problem(401, "key_expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settlements_of_a_call_stay_when_its_key_ends_while_it_waits() {
    let app = App::with_keys().await;
    let worker = app.make_key(json!({"scopes": ["work"]})).await;
    let id = app.publish_tagged("b").await;
    app.claim("b", "w:1").await.expect("an event");
    let claim = json!({"tags": ["a"], "wait_seconds": 60});
    let body = json!({"worker_id": "w:1", "settlements": [{"event_id": id, "action": "complete"}], "claim": claim});
    let request = app.holding(&worker).client.post(format!("{}/events/settle", app.base)).json(&body);
    let settling = async { Reply::of(request.send().await.expect("a response")).await };
    let revoking = async {
        until("it waits", async || app.engine().hub().asleep() == 1).await;
        revoke(&app, &worker).await;
    };
    let (reply, ()) = within_patience(join(settling, revoking)).await;
    let reply = reply.expect(200).json();
    assert_eq!(reply["results"][0]["accepted"], true);
    assert_eq!(reply["claim_problem"]["code"], "key_revoked");
}
