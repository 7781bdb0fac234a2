//! `POST /dead-letters/{id}/replay`: what may be replayed. How it is sent is tested in
//! `tests/push`.

use serde_json::json;
use waybill::background::subscription_drainer;

use crate::support::receiver::Receiver;
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::{App, Reply, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_once_and_the_replay_is_recorded() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let letter = app.open_dead_letter(event).await;
    let order = json!({"reason": "the receiver is mended"});
    let replay = app.replay(&letter["id"], order.clone()).await.expect(200).json()["replay"].clone();
    assert!(replay["replayed_at"].is_string(), "{replay}");
    let expected = json!({
        "replayed_at": replay["replayed_at"], "actor": null, "config": "current", "reason": order["reason"],
    });
    assert_eq!(replay, expected);
    assert_eq!(app.dead_letters("replayed=true").await[0]["replay"], expected);
    let delivery = app.until_delivery(letter["delivery_id"].as_i64().unwrap(), "COMPLETED").await;
    assert_eq!(delivery["replay_of"], letter["id"]);
    let event = app.event(event).await;
    let line = &event["logs"][3];
    assert_eq!((&line["action"], &line["reason"]), (&json!("REPLAYED"), &order["reason"]));
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
        app.dead_letter(id, "a_test").await.expect(200);
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
    let wrong = json!({"reason": 1, "config": "latest", "new_webhook_id": "yes", "by": "me"});
    app.replay(&json!(1), wrong).await.names(&["reason", "config", "new_webhook_id", "by"]);
    app.replay(&json!(1), json!({"reason": "x".repeat(256)})).await.names(&["reason"]);
    app.post_empty("/dead-letters/1/replay?reason=mended").await.names(&["reason"]);
    app.replay(&json!(4711), json!({})).await.problem(404, "dead_letter_not_found");
    app.post_empty("/dead-letters/4711/replay").await.problem(404, "dead_letter_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_needs_no_body() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", one_attempt()).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    app.dead_letter(app.only_delivery(event).await, "a_test").await.expect(200);
    let letter = app.open_dead_letter(event).await["id"].clone();
    let path = format!("/dead-letters/{letter}/replay");
    let request = app.client.post(format!("{}{path}", app.base)).header("content-type", "text/plain").body("{}");
    Reply::of(request.send().await.expect("a response")).await.problem(415, "unsupported_media_type");
    let replay = app.post_empty(&path).await.expect(200).json()["replay"].clone();
    assert_eq!((&replay["config"], &replay["reason"]), (&json!("current"), &json!(null)));
}
