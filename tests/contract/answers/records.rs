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
    operate_on_many(server, &receiver).await;
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
    server.post_empty(&format!("/deliveries/{delivery}/dead-letter?reason=late")).await.problem(409, "wrong_state");
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
    server.post_empty(&format!("/deliveries/{given_up}/dead-letter?reason=obsolete")).await.expect(200);
    server.get("/deliveries?status=FAILED&limit=1").await.expect(200);
}

async fn replay(server: &CheckedServer<'_>, receiver: &Receiver) {
    let page = server.get("/dead-letters?reason=manual&replayed=false").await.expect(200).json();
    let id = &page["dead_letters"][0]["id"];
    server.get(&format!("/dead-letters/{id}")).await.expect(200);
    let order = json!({"reason": "mended", "config": "original", "payload": [1], "new_webhook_id": true});
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

async fn operate_on_many(server: &CheckedServer<'_>, receiver: &Receiver) {
    server.app.publish_and_fail(receiver, "record.failed", json!(2)).await;
    waiting(server).await;
    for (path, filter) in [
        ("/deliveries/cancel", json!({"status": "PENDING"})),
        ("/deliveries/retry", json!({"since": "2020-01-01T00:00:00Z", "status": "CANCELLED"})),
        ("/dead-letters/replay", json!({"reason": "exhausted"})),
    ] {
        let count = server.post(path, &json!({"filter": filter, "dry_run": true})).await.expect(200).json();
        assert!(count["matched"].as_i64() > Some(0), "{path} {filter}: {count}");
        let body = json!({"filter": filter, "reason": "tidying", "per_second": 0.1});
        let operation = server.post(path, &body).await.expect(202).json();
        operation_runner::run_once(server.app.engine()).await.expect("a round");
        let path = format!("/operations/{}", operation["id"]);
        server.get(&path).await.expect(200);
        for _ in 0..2 {
            server.post_empty(&format!("{path}/cancel")).await.expect(200);
        }
    }
    let page = server.get("/operations?limit=1&kind=replay_dead_letters&order=desc").await.expect(200).json();
    assert_eq!(page["operations"][0]["config"], "current");
    server.get("/operations?status=CANCELLED").await.expect(200);
    let page = server.get("/audit?action=operation.cancelled").await.expect(200).json();
    assert_eq!(page["entries"][0]["subject"]["kind"], "operation", "{page}");
}

/// Starts operations that never end, until there are too many.
pub(super) async fn start_too_many(server: &CheckedServer<'_>) {
    let body = json!({"filter": {}, "per_second": 0.1});
    let paths = ["/events/retry", "/events/cancel", "/events/reset", "/deliveries/retry", "/deliveries/cancel"];
    for path in paths.iter().cycle() {
        let reply = server.post(path, &body).await;
        if reply.status == 409 {
            reply.problem(409, "too_many_operations");
            break;
        }
        reply.expect(202);
    }
    for path in paths.iter().chain(["/dead-letters/replay"].iter()) {
        server.post(path, &body).await.problem(409, "too_many_operations");
    }
}
