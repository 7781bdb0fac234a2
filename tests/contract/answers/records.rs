//! Pushes that succeed, fail and are replayed.

use serde_json::{Value, json};
use waybill::background::operation_runner;

use crate::contract::witness::CheckedServer;
use crate::support::receiver::{Receiver, Reply};

pub(super) async fn run(server: &CheckedServer<'_>) {
    let receiver = Receiver::start().await;
    server.app.subscribe(&receiver.url("/hook"), json!({"event_types": ["record.*"], "max_attempts": 1})).await;
    retry(server, &receiver).await;
    intervene(server).await;
    replay(server, &receiver).await;
    replay_many(server, &receiver).await;
}

async fn retry(server: &CheckedServer<'_>, receiver: &Receiver) {
    let event = server.app.publish_and_fail(receiver, "record.failed", json!(1)).await;
    let delivery = server.app.only_delivery(event).await;
    server.get(&format!("/deliveries?event_id={event}")).await.expect(200);
    server.get(&format!("/events/{event}?include_deliveries=true&include_logs=true")).await.expect(200);
    let one = server.get(&format!("/deliveries/{delivery}")).await.expect(200).json();
    assert_eq!(one["attempts"][0]["status_code"], 500);
    server.post_empty(&format!("/deliveries/{delivery}/retry?reason=mended")).await.expect(200);
    server.app.until_delivery(delivery, "COMPLETED").await;
    for verb in ["retry", "cancel"] {
        server.post_empty(&format!("/deliveries/{delivery}/{verb}")).await.problem(409, "wrong_state");
    }
    let body = json!({"by": "night shift", "reason": "too late"});
    server.post(&format!("/deliveries/{delivery}/dead-letter"), &body).await.problem(409, "wrong_state");
}

/// Creates a delivery that waits for its due time.
async fn waiting(server: &CheckedServer<'_>) -> i64 {
    let event = server.app.publish(json!({"event_type": "record.later", "delay_seconds": 3600})).await;
    server.app.only_delivery(event).await
}

async fn intervene(server: &CheckedServer<'_>) {
    let cancelled = waiting(server).await;
    server.post_empty(&format!("/deliveries/{cancelled}/cancel?reason=obsolete")).await.expect(200);
    let given_up = waiting(server).await;
    let body = json!({"by": "night shift", "reason": "the customer has left"});
    server.post(&format!("/deliveries/{given_up}/dead-letter"), &body).await.expect(200);
    server.get("/deliveries?status=FAILED&limit=1").await.expect(200);
}

async fn replay(server: &CheckedServer<'_>, receiver: &Receiver) {
    let page = server.get("/dead-letters?reason=manual&replayed=false").await.expect(200).json();
    let id = &page["dead_letters"][0]["id"];
    server.get(&format!("/dead-letters/{id}")).await.expect(200);
    let order = json!({"by": "night shift", "config": "original", "payload": [1], "new_webhook_id": true});
    server.post(&format!("/dead-letters/{id}/replay"), &order).await.expect(200);
    server.post(&format!("/dead-letters/{id}/replay"), &order).await.problem(409, "not_replayable");
    let delivery = page["dead_letters"][0]["delivery_id"].as_i64().expect("an id");
    server.app.until_delivery(delivery, "COMPLETED").await;
    receiver.next(Reply::reset());
    let event = server.app.publish_typed("record.reset", Value::Null).await;
    server.app.until_delivery(server.app.only_delivery(event).await, "FAILED").await;
    let letter = server.app.open_dead_letter(event).await;
    let whole = server.get(&format!("/dead-letters/{}", letter["id"])).await.expect(200).json();
    assert_eq!(whole["attempts"][0]["error_kind"], "connection");
}

async fn replay_many(server: &CheckedServer<'_>, receiver: &Receiver) {
    server.app.publish_and_fail(receiver, "record.failed", json!(2)).await;
    let count = json!({"filter": {"reason": "exhausted"}, "by": "night shift", "dry_run": true});
    server.post("/dead-letters/replay", &count).await.expect(200);
    let order = json!({"filter": {"since": "2020-01-01T00:00:00Z"}, "by": "night shift", "rate_per_second": 0.1});
    let id = server.post("/dead-letters/replay", &order).await.expect(202).json()["id"].clone();
    operation_runner::run_once(server.app.engine()).await.expect("a round");
    let replay = server.get(&format!("/replays/{id}")).await.expect(200).json();
    assert_eq!((&replay["status"], &replay["replayed"]), (&json!("RUNNING"), &json!(1)));
    server.post_empty(&format!("/replays/{id}/cancel")).await.expect(200);
    server.post_empty(&format!("/replays/{id}/cancel")).await.expect(200);
    server.get("/replays?limit=1").await.expect(200);
}
