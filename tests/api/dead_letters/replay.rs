//! `POST /dead-letters/{id}/replay`: what may be replayed. How it is sent is tested in
//! `tests/push`.

use serde_json::json;
use waybill::background::subscription_drainer;

use crate::support::receiver::Receiver;
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_once_and_the_replay_is_recorded() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let letter = app.open_dead_letter(event).await;
    let replayed = app.replay(&letter["id"], json!({})).await.expect(200).json();
    assert_eq!((&replayed["replayed_by"], &replayed["replay_config"]), (&json!("an operator"), &json!("current")));
    assert!(replayed["replayed_at"].is_string());
    let delivery = app.until_delivery(letter["delivery_id"].as_i64().unwrap(), "COMPLETED").await;
    assert_eq!(delivery["replay_of"], letter["id"]);
    let event = app.event(event).await;
    let line = &event["logs"][3];
    assert_eq!((&line["action"], &line["reason"]), (&json!("REPLAYED"), &json!("an operator")));
    assert_eq!(event["status"], "COMPLETED");
    app.replay(&letter["id"], json!({})).await.problem(409, "not_replayable");
    assert_eq!(receiver.count(), 2);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_replays_of_one_dead_letter_one_succeeds() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let id = app.open_dead_letter(event).await["id"].clone();
    let replays = futures_util::future::join_all((0..8).map(|_| app.replay(&id, json!({})))).await;
    let mut statuses: Vec<u16> = replays.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
    app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    assert_eq!(receiver.count(), 2);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_was_retried_or_whose_subscription_is_deleted_cannot_be_replayed() {
    let app = app_that_sends_nothing().await;
    let subscription = app.subscribe("http://127.0.0.1:9/hook", one_attempt()).await;
    let mut letters = Vec::new();
    for n in 0..2 {
        let event = app.publish_typed("order.paid", json!(n)).await;
        let id = app.only_delivery(event).await;
        let body = json!({"by": "night shift", "reason": "a test"});
        app.post(&format!("/deliveries/{id}/dead-letter"), &body).await.expect(200);
        letters.push(app.open_dead_letter(event).await);
    }
    let retried = letters[0]["delivery_id"].as_i64().unwrap();
    app.operate_on_delivery(retried, "retry").await.expect(200);
    app.replay(&letters[0]["id"], json!({})).await.problem(409, "not_replayable");
    app.delete(&format!("/subscriptions/{}", subscription["id"])).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");
    let problem = app.replay(&letters[1]["id"], json!({})).await.problem(409, "not_replayable");
    assert!(problem["detail"].as_str().unwrap().contains("its subscription was deleted"), "{problem}");
    assert_eq!(app.delivery(retried).await["status"], "CANCELLED", "it was cancelled with its subscription");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_push_that_was_cancelled_to_unblock_its_key_can_be_replayed() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let in_order = json!({"max_attempts": 1, "ordering": "by_key", "on_exhausted": "block"});
    app.subscribe(&receiver.url("/hook"), in_order).await;
    receiver.next(crate::support::receiver::Reply::status(500));
    let event = app.publish(json!({"event_type": "order.paid", "ordering_key": "k"})).await;
    let id = app.only_delivery(event).await;
    app.until_delivery(id, "FAILED").await;
    app.operate_on_delivery(id, "cancel").await.expect(200);
    let letter = app.open_dead_letter(event).await;
    app.replay(&letter["id"], json!({})).await.expect(200);
    app.until_delivery(id, "COMPLETED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_of_a_replay_are_named() {
    let app = App::start().await;
    app.post("/dead-letters/1/replay", &json!({})).await.names(&["by"]);
    let wrong = json!({"by": 1, "config": "latest", "new_webhook_id": "yes", "colour": "red"});
    app.post("/dead-letters/1/replay", &wrong).await.names(&["by", "config", "new_webhook_id", "colour"]);
    app.replay(&json!(4711), json!({})).await.problem(404, "dead_letter_not_found");
}
