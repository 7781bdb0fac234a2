//! How long keys are kept.

use serde_json::json;

use super::job;
use crate::support::retention::DAY;
use crate::support::{App, Options};

async fn completed(app: &App, key: &str) -> i64 {
    let id = app.publish(job(key)).await;
    app.claim("a", "w:1").await.expect("the event");
    app.complete(id, "w:1").await.expect(200);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_free_again_after_a_day() {
    let app = App::with_fixed_clock().await;
    let id = completed(&app, "k").await;
    app.advance(DAY - 60);
    app.remove_old().await;
    app.post("/events", &job("k")).await.expect(200);
    app.advance(120);
    assert_eq!(app.remove_old().await["idempotency_keys"], 1);
    let again = app.post("/events", &job("k")).await.expect(201).json();
    assert_ne!(again["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_outlives_an_event_that_is_removed_sooner() {
    let flags = vec!["--idempotency-retention=60d".to_owned()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    let id = completed(&app, "k").await;
    let created_at = app.event(id).await["created_at"].clone();
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 1);
    assert!(!app.has_event(id).await);
    let reply = app.post("/events", &job("k")).await.expect(200);
    assert_eq!(reply.header("idempotent-replayed"), Some("true"));
    let expected =
        json!({"id": id, "status": "COMPLETED", "created_at": created_at, "repeated": true, "removed": true});
    assert_eq!(reply.json(), expected);
    let batch = app.post("/events/batch", &json!({"events": [job("k")]})).await.expect(201).json();
    assert_eq!((&batch["events"][0]["status"], &batch["events"][0]["repeated"]), (&json!("COMPLETED"), &json!(true)));
    let mut other = job("k");
    other["title"] = json!("another");
    app.post("/events", &other).await.problem(422, "idempotency_key_reused");
}
