//! Contents are hidden from keys without the scope `reveal`.

use serde_json::{Value, json};

use crate::support::receiver::Receiver;
use crate::support::{App, Reply};

/// The word that stands in every payload, result, progress and error text here.
const SECRET: &str = "top-secret";

/// Asserts that a response has nothing secret, and returns it.
#[track_caller]
fn hides(reply: Reply) -> Value {
    let reply = reply.expect(200);
    assert!(!reply.text.contains(SECRET), "{}", reply.text);
    reply.json()
}

#[track_caller]
fn shows(reply: Reply) -> Value {
    let reply = reply.expect(200);
    assert!(reply.text.contains(SECRET) && !reply.text.contains("hidden"), "{}", reply.text);
    reply.json()
}

/// Returns the server as those see it who may read, and who may also see contents.
async fn readers(app: &App) -> (App, App) {
    let revealing = app.make_key(json!({"scopes": ["read", "reveal"]})).await;
    (app.holder_of("read").await, app.holding(&revealing))
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_of_events_and_logs_are_hidden_and_the_answer_says_so() {
    let app = App::with_keys().await;
    let (reader, revealing) = readers(&app).await;
    let event = json!({"title": "t", "tags": "a", "payload": SECRET, "max_retries": 5, "backoff": {"strategy": "fixed", "seconds": 0}});
    let id = app.publish(event).await;
    let worker = app.holder_of("work").await;
    let claimed = worker.claim("a", "w:1").await.expect("an event");
    assert_eq!(claimed["payload"], SECRET, "a worker gets what it works on");
    worker.post(&format!("/events/{id}/heartbeat"), &json!({"worker_id": "w:1", "progress": SECRET})).await.expect(200);
    worker.post(&format!("/events/{id}/fail"), &json!({"worker_id": "w:1", "error_message": SECRET})).await.expect(200);
    let path = format!("/events/{id}?include_logs=true");
    let hidden = hides(reader.get(&path).await);
    assert_eq!(hidden["hidden"], json!(["payload", "progress", "result", "last_error"]));
    assert_eq!(
        [&hidden["payload"], &hidden["progress"], &hidden["last_error"]],
        [&Value::Null, &Value::Null, &Value::Null]
    );
    let logs = hidden["logs"].as_array().expect("logs");
    let failed = logs.iter().find(|entry| entry["action"] == "FAILED").expect("a failure");
    assert_eq!((&failed["hidden"], failed.get("error_message")), (&json!(["error_message"]), None));
    let shown = shows(revealing.get(&path).await);
    assert_eq!(
        (&shown["payload"], &shown["progress"], &shown["last_error"]),
        (&json!(SECRET), &json!(SECRET), &json!(SECRET))
    );
    let listed = hides(reader.get("/events").await);
    assert_eq!(listed["events"][0]["hidden"], json!(["last_error"]));
    shows(revealing.get("/events").await);
    hides(reader.get("/logs").await);
    shows(revealing.get("/logs").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_without_the_scope_does_not_see_contents_either() {
    let app = App::with_keys().await;
    let id = app.publish(json!({"title": "t", "tags": "a", "payload": SECRET})).await;
    let operator = app.holder_of("operate").await;
    let cancelled = hides(operator.post_empty(&format!("/events/{id}/cancel")).await);
    assert_eq!(cancelled["hidden"], json!(["payload", "progress", "result", "last_error"]));
    shows(app.post_empty(&format!("/events/{id}/retry")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_of_deliveries_and_dead_letters_are_hidden() {
    let receiver = Receiver::start().await;
    let app = App::with_keys().await;
    let (reader, revealing) = readers(&app).await;
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
    receiver.next(crate::support::receiver::Reply::status(500).body(SECRET));
    let event = app.publish(json!({"event_type": "order.paid", "payload": {"card": SECRET}})).await;
    let delivery = app.only_delivery(event).await;
    app.until_delivery(delivery, "FAILED").await;
    let letter = app.open_dead_letter(event).await["id"].clone();
    let (path, letter) = (format!("/deliveries/{delivery}"), format!("/dead-letters/{letter}"));
    let hidden = hides(reader.get(&path).await);
    assert_eq!((&hidden["last_error"], &hidden["hidden"]), (&Value::Null, &json!(["last_error"])));
    assert_eq!(hidden["attempts"][0]["hidden"], json!(["error_message", "response_excerpt"]));
    shows(revealing.get(&path).await);
    hides(reader.get("/deliveries").await);
    hides(reader.get(&format!("/events/{event}?include_deliveries=true&include_logs=true")).await);
    let hidden = hides(reader.get(&letter).await);
    assert_eq!(
        hidden["hidden"],
        json!(["detail", "event.payload", "attempts.error_message", "attempts.response_excerpt"])
    );
    assert_eq!((&hidden["event"]["payload"], &hidden["event"]["event_type"]), (&Value::Null, &json!("order.paid")));
    shows(revealing.get(&letter).await);
    hides(reader.get("/dead-letters").await);
    hides(app.holder_of("operate").await.post(&format!("{letter}/replay"), &json!({})).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_are_hidden_in_dry_runs_of_operations() {
    let receiver = Receiver::start().await;
    let app = App::with_keys().await;
    let operator = app.holding(&app.make_key(json!({"scopes": ["operate", "read"]})).await);
    let revealing = app.holding(&app.make_key(json!({"scopes": ["operate", "read", "reveal"]})).await);
    let worker = app.holder_of("work").await;
    for tag in ["failed", "open"] {
        let backoff = json!({"strategy": "fixed", "seconds": 0});
        let retries = if tag == "open" { 5 } else { 1 };
        let event = json!({"title": "t", "tags": tag, "max_retries": retries, "backoff": backoff});
        let id = app.publish(event).await;
        worker.claim(tag, "w:1").await.expect("an event");
        let failure = json!({"worker_id": "w:1", "error_message": SECRET});
        worker.post(&format!("/events/{id}/fail"), &failure).await;
    }
    worker.claim("open", "w:1").await.expect("the event again");
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1, "ordering": "by_key", "on_exhausted": "block"}))
        .await;
    receiver.next(crate::support::receiver::Reply::status(500).body(SECRET));
    let event = app.publish(json!({"event_type": "order.paid", "ordering_key": "k"})).await;
    app.until_delivery(app.only_delivery(event).await, "FAILED").await;
    app.open_dead_letter(event).await;
    for (path, filter, hidden) in [
        ("/events/retry", json!({"tags": ["failed"]}), "last_error"),
        ("/events/cancel", json!({"tags": ["open"]}), "last_error"),
        ("/events/reset", json!({"tags": ["open"], "stale_for_seconds": 0}), "last_error"),
        ("/deliveries/retry", json!({}), "last_error"),
        ("/dead-letters/replay", json!({}), "detail"),
    ] {
        let dry_run = json!({"filter": filter, "dry_run": true});
        let preview = hides(operator.post(path, &dry_run).await);
        assert_eq!(preview["sample"][0]["hidden"], json!([hidden]), "{path}");
        let shown = revealing.post(path, &dry_run).await.expect(200).json();
        let row = &shown["sample"][0];
        assert!(row.get("hidden").is_none() && row[hidden].is_string(), "{path}: {shown}");
    }
}
