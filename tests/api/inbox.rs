//! `/webhooks`: the inbox.

use serde_json::{Value, json};

use crate::support::retention::DAY;
use crate::support::{App, ledger};

fn webhook(key: &str) -> Value {
    json!({"idempotency_key": key, "event_type": "payment.made", "payload": {"amount": 12}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_becomes_an_event_with_the_tag_inbox() {
    let app = App::start().await;
    let received = app.post("/webhooks", &webhook("k")).await.expect(202).json();
    let fields: Vec<&String> = received.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["created_at", "id", "idempotency_key", "status"]);
    assert_eq!((&received["idempotency_key"], &received["status"]), (&json!("k"), &json!("PENDING")));
    let event = app.claim("inbox", "w:1").await.expect("the event");
    assert_eq!((&event["id"], &event["event_type"]), (&received["id"], &json!("payment.made")));
    assert_eq!((&event["payload"], &event["max_retries"]), (&json!({"amount": 12}), &json!(5)));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_webhook_is_tried_again_after_5_seconds_then_10() {
    let app = App::with_fixed_clock().await;
    let id = app.post("/webhooks", &webhook("k")).await.expect(202).json()["id"].as_i64().expect("an id");
    for wait in [5, 10, 20, 40] {
        app.claim("inbox", "w:1").await.expect("the event");
        let failed = app.fail(id, "w:1").await.expect(200).json();
        let due = failed["next_retry_at"].as_str().expect("a time").parse::<chrono::DateTime<chrono::Utc>>();
        // The database's times are whole microseconds.
        let waited = due.expect("a time") - app.now() + chrono::TimeDelta::milliseconds(1);
        assert_eq!(waited.num_seconds(), wait);
        app.advance(wait);
        waybill::background::promoter::run_once(app.engine()).await.expect("a round");
    }
    app.claim("inbox", "w:1").await.expect("the event");
    app.fail(id, "w:1").await.problem(400, "max_retries_exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_answered_with_the_current_status_whatever_its_body() {
    let app = App::start().await;
    let received = app.post("/webhooks", &webhook("k")).await.expect(202).json();
    app.claim("inbox", "w:1").await.expect("the event");
    let other = json!({"idempotency_key": "k", "event_type": "other", "payload": 7, "tags": ["b"]});
    let again = app.post("/webhooks", &other).await.expect(200).json();
    assert_eq!((&again["id"], &again["status"]), (&received["id"], &json!("PROCESSING")));
    assert_eq!((&again["created_at"], again.get("updated_at")), (&received["created_at"], None));
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
    // Publishers have their own keys.
    app.post("/events", &json!({"title": "a", "tags": "a", "idempotency_key": "k"})).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_answered_even_if_its_body_breaks_the_schema_of_its_type() {
    let app = App::start().await;
    let schema = json!({"type": "object", "required": ["amount"]});
    app.put("/event-types/payment.made", &json!({"schema": schema})).await.expect(201);
    let received = app.post("/webhooks", &webhook("k")).await.expect(202).json();
    let bad = |key: &str| json!({"idempotency_key": key, "event_type": "payment.made", "payload": {}});
    assert_eq!(app.post("/webhooks", &bad("k")).await.expect(200).json()["id"], received["id"]);
    app.post("/webhooks", &bad("other")).await.names(&["payload.amount"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_found_by_id_and_by_key() {
    let app = App::start().await;
    let mut tagged = webhook("a key/ü");
    tagged["tags"] = json!("billing, eu");
    let id = app.post("/webhooks", &tagged).await.expect(202).json()["id"].as_i64().expect("an id");
    let by_id = app.get(&format!("/webhooks/{id}")).await.expect(200).json();
    let by_key = app.get("/webhooks?idempotency_key=a%20key%2F%C3%BC").await.expect(200).json();
    assert_eq!(by_id, by_key);
    let fields: Vec<&String> = by_id.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["created_at", "id", "idempotency_key", "status", "updated_at"]);
    assert_eq!(app.event(id).await["tags"], "billing,eu");
    app.get("/webhooks?idempotency_key=unknown").await.problem(404, "webhook_not_found");
    app.get("/webhooks").await.names(&["idempotency_key"]);
    let event = app.publish_tagged("a").await;
    app.get(&format!("/webhooks/{event}")).await.problem(404, "event_not_found");
    app.namespace("other").await.get(&format!("/webhooks/{id}")).await.problem(404, "event_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_found_as_long_as_its_event_exists() {
    let app = App::with_fixed_clock().await;
    let id = app.post("/webhooks", &webhook("k")).await.expect(202).json()["id"].as_i64().expect("an id");
    app.advance(29 * DAY);
    app.claim("inbox", "w:1").await.expect("the event");
    app.complete(id, "w:1").await.expect(200);
    app.remove_old().await;
    assert_eq!(app.get("/webhooks?idempotency_key=k").await.expect(200).json()["status"], "COMPLETED");
    assert_eq!(app.post("/webhooks", &webhook("k")).await.expect(200).json()["id"], id);
    app.advance(31 * DAY);
    app.remove_old().await;
    app.get("/webhooks?idempotency_key=k").await.problem(404, "webhook_not_found");
    app.advance(DAY);
    app.remove_old().await;
    app.post("/webhooks", &webhook("k")).await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_webhook_is_refused_and_all_its_mistakes_are_named() {
    let app = App::start().await;
    app.post("/webhooks", &json!({"payload": 1, "priority": 3})).await.names(&[
        "idempotency_key",
        "event_type",
        "priority",
    ]);
    app.post("/webhooks", &json!({"idempotency_key": "k", "event_type": "waybill.x"})).await.names(&["event_type"]);
    app.post("/webhooks", &json!({"idempotency_key": "k", "event_type": "x", "tags": ""})).await.names(&["tags"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
}
