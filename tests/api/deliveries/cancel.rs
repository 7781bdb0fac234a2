//! `POST /deliveries/{id}/cancel`.

use serde_json::json;

use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_push_is_cancelled_once() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    for _ in 0..2 {
        let delivery = app.post_empty(&format!("/deliveries/{id}/cancel?reason=obsolete")).await.expect(200).json();
        assert_eq!(delivery["status"], "CANCELLED");
    }
    assert_eq!(app.actions(event).await, ["CANCELLED"]);
    assert_eq!(app.event(event).await["logs"][0]["reason"], "obsolete");
    assert_eq!(app.dead_letters("").await.len(), 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_cancelled_in_flight_ends_with_its_current_attempt() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    for (reply, status) in [(Reply::status(500), "CANCELLED"), (Reply::ok(), "COMPLETED")] {
        let gate = Gate::closed();
        receiver.next(reply.held_by(&gate));
        let event = app.publish_typed("order.paid", json!(1)).await;
        let id = app.only_delivery(event).await;
        receiver.until_in_flight(1).await;
        for _ in 0..2 {
            let delivery = app.operate_on_delivery(id, "cancel").await.expect(200).json();
            assert_eq!((&delivery["status"], &delivery["cancel_requested"]), (&json!("PROCESSING"), &json!(true)));
        }
        gate.open();
        app.until_delivery(id, status).await;
        receiver.until_in_flight(0).await;
    }
    assert_eq!(receiver.count(), 2);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_for_cancelling_a_push_in_flight_is_shown_and_logged() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    let gate = Gate::closed();
    receiver.next(Reply::status(500).held_by(&gate));
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    receiver.until_in_flight(1).await;
    app.post_empty(&format!("/events/{event}/cancel?reason=obsolete")).await.expect(200);
    assert_eq!(app.delivery(id).await["cancel_reason"], "obsolete");
    gate.open();
    app.until_delivery(id, "CANCELLED").await;
    let line = app.event(event).await["logs"].as_array().expect("logs").last().expect("a line").clone();
    assert_eq!((&line["action"], &line["reason"]), (&json!("CANCELLED"), &json!("obsolete")));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_push_cannot_be_cancelled() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let failed = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let id = app.only_delivery(failed).await;
    app.operate_on_delivery(id, "cancel").await.problem(409, "wrong_state");
    let done = app.publish_typed("order.paid", json!(2)).await;
    let id = app.only_delivery(done).await;
    app.until_delivery(id, "COMPLETED").await;
    app.operate_on_delivery(id, "cancel").await.problem(409, "wrong_state");
    ledger::check(&app).await;
}

/// Creates an ordered subscription that blocks a key after a failed push. Returns the failed
/// delivery and the two behind it.
async fn blocked_key(app: &App, receiver: &Receiver) -> (i64, [i64; 2]) {
    let in_order = json!({"max_attempts": 1, "ordering": "by_key", "on_exhausted": "block"});
    app.subscribe(&receiver.url("/hook"), in_order).await;
    receiver.next(Reply::status(500));
    let mut ids = Vec::new();
    for n in 1..=3 {
        let event = json!({"event_type": "order.paid", "ordering_key": "k", "payload": n});
        ids.push(app.only_delivery(app.publish(event).await).await);
    }
    app.until_delivery(ids[0], "FAILED").await;
    (ids[0], [ids[1], ids[2]])
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_failed_push_that_blocks_its_key_lets_the_key_continue() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let (failed, waiting) = blocked_key(&app, &receiver).await;
    ledger::check(&app).await;
    assert_eq!(receiver.count(), 1, "the others wait");
    assert_eq!(app.operate_on_delivery(failed, "cancel").await.expect(200).json()["status"], "CANCELLED");
    for id in waiting {
        app.until_delivery(id, "COMPLETED").await;
    }
    app.operate_on_delivery(failed, "cancel").await.expect(200);
    assert_eq!(app.dead_letters("replayed=false").await.len(), 1, "it can be sent again later");
    let sent: Vec<_> = receiver.so_far().iter().map(|request| request.text().to_owned()).collect();
    assert_eq!(sent, ["1", "2", "3"]);
    app.operate_on_delivery(failed, "retry").await.expect(200);
    app.until_delivery(failed, "COMPLETED").await;
    assert_eq!(app.dead_letters("replayed=false").await.len(), 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_push_that_blocks_its_key_is_sent_first_when_it_is_retried() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let (failed, waiting) = blocked_key(&app, &receiver).await;
    app.operate_on_delivery(failed, "retry").await.expect(200);
    for id in waiting {
        app.until_delivery(id, "COMPLETED").await;
    }
    let sent: Vec<_> = receiver.so_far().iter().map(|request| request.text().to_owned()).collect();
    assert_eq!(sent, ["1", "1", "2", "3"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_key_can_be_unblocked_after_its_subscription_was_set_to_skip() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let (failed, waiting) = blocked_key(&app, &receiver).await;
    let subscription = app.delivery(failed).await["subscription_id"].clone();
    app.patch(&format!("/subscriptions/{subscription}"), &json!({"on_exhausted": "skip"})).await.expect(200);
    app.operate_on_delivery(failed, "cancel").await.expect(200);
    for id in waiting {
        app.until_delivery(id, "COMPLETED").await;
    }
    ledger::check(&app).await;
}
