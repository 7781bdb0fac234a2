//! A repeated event takes no room.

use serde_json::{Value, json};
use waybill::background::limit_refresher;

use super::job;
use crate::support::App;
use crate::support::retention::DAY;

async fn limit(app: &App, limits: Value) {
    app.patch("/namespaces/default", &json!({"settings": {"limits": limits}})).await.expect(200);
}

async fn used(app: &App, limit: &str) -> Value {
    app.get("/usage").await.expect(200).json()["namespace"][limit]["used"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_events_count_neither_as_waiting_nor_as_stored() {
    let app = App::with_fixed_clock().await;
    let bytes = json!({"n": 1}).to_string().len();
    limit(&app, json!({"waiting_events": 6, "stored_bytes": 6 * bytes})).await;
    app.post("/events", &job("k")).await.expect(201);
    let webhook = json!({"idempotency_key": "k", "event_type": "t", "payload": {"n": 1}});
    app.post("/webhooks", &webhook).await.expect(202);
    for _ in 0..5 {
        app.post("/events", &job("k")).await.expect(200);
        app.post("/webhooks", &webhook).await.expect(200);
        app.post("/events/batch", &json!({"events": [job("k"), job("l"), job("l")]})).await.expect(201);
    }
    assert_eq!(used(&app, "waiting_events").await, 3);
    assert_eq!(used(&app, "stored_bytes").await, 3 * bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_under_a_former_limit_does_not_count_under_a_new_one() {
    let app = App::with_fixed_clock().await;
    limit(&app, json!({"stored_bytes": 1_000})).await;
    let event = json!({"event_type": "order.paid", "payload": "x".repeat(900)});
    app.post("/events", &event).await.expect(201);
    limit_refresher::run_once(app.engine()).await.expect("a round");
    app.post("/events", &event).await.problem(429, "limit_exceeded");
    limit(&app, json!({})).await;
    limit_refresher::run_once(app.engine()).await.expect("a round");
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 1);
    limit(&app, json!({"stored_bytes": 1_000})).await;
    app.post("/events", &event).await.expect(201);
    assert_eq!(used(&app, "stored_bytes").await, 902);
}
