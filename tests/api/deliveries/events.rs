//! Operators' verbs on events that are pushed, and ids of the wrong kind.

use serde_json::json;

use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::{App, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn verbs_of_events_refuse_delivery_ids_and_verbs_of_deliveries_refuse_event_ids() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    let event = app.publish(json!({"event_type": "order.paid", "tags": "billing"})).await;
    let delivery = app.only_delivery(event).await;
    for verb in ["cancel", "retry", "reset"] {
        app.operate(delivery, verb).await.problem(404, "event_not_found");
    }
    for verb in ["complete", "fail", "start", "heartbeat", "release"] {
        let body = json!({"worker_id": "w:1"});
        app.post(&format!("/events/{delivery}/{verb}"), &body).await.problem(404, "event_not_found");
    }
    for verb in ["cancel", "retry"] {
        app.operate_on_delivery(event, verb).await.problem(404, "delivery_not_found");
    }
    app.dead_letter(event, "r").await.problem(404, "delivery_not_found");
    app.operate(event, "cancel").await.expect(200);
    assert_eq!(app.delivery(delivery).await["status"], "PENDING", "only the event's own work was cancelled");
    ledger::check(&app).await;
}

/// Lease ids increase from claim to claim, so they are easily guessed.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cannot_settle_a_push_whose_id_and_lease_it_guesses() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::status(200).held_by(&gate));
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    receiver.until_in_flight(1).await;
    let lease_id = app.count(&format!("SELECT lease_id FROM waybill.deliveries WHERE id = {id}")).await;
    for verb in ["start", "heartbeat", "complete", "fail", "release"] {
        let body = json!({"worker_id": "host:1", "lease_id": lease_id});
        app.post(&format!("/events/{id}/{verb}"), &body).await.problem(404, "event_not_found");
    }
    assert_eq!(app.delivery(id).await["status"], "PROCESSING");
    gate.open();
    app.until_delivery(id, "COMPLETED").await;
    assert_eq!(receiver.count(), 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_an_event_that_is_only_pushed_cancels_its_pushes() {
    let app = app_that_sends_nothing().await;
    for _ in 0..3 {
        app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    }
    let event = app.publish_typed("order.paid", json!(1)).await;
    for _ in 0..2 {
        let cancelled = app.post_empty(&format!("/events/{event}/cancel?reason=obsolete")).await.expect(200).json();
        assert_eq!(cancelled["status"], "CANCELLED");
    }
    assert!(app.deliveries_of(event).await.iter().all(|delivery| delivery["status"] == "CANCELLED"));
    assert_eq!(app.actions(event).await, ["CANCELLED"; 3]);
    app.operate(event, "reset").await.problem(409, "wrong_state");
    ledger::check(&app).await;
    let retried = app.operate(event, "retry").await.expect(200).json();
    assert_eq!((&retried["status"], &retried["cancel_requested"]), (&json!("PENDING"), &json!(false)));
    assert!(app.deliveries_of(event).await.iter().all(|delivery| delivery["status"] == "PENDING"));
    app.operate(event, "retry").await.problem(409, "wrong_state");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_in_flight_of_a_cancelled_event_ends_with_its_current_attempt() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.next(Reply::status(500).held_by(&gate));
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    receiver.until_in_flight(1).await;
    let cancelled = app.operate(event, "cancel").await.expect(200).json();
    assert_eq!((&cancelled["status"], &cancelled["cancel_requested"]), (&json!("PENDING"), &json!(true)));
    gate.open();
    until("the attempt is over", async || app.status(event).await == "CANCELLED").await;
    assert_eq!(app.actions(event).await, ["PICKED", "FAILED", "CANCELLED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retrying_an_event_that_is_only_pushed_sends_only_its_failed_pushes() {
    let (app, good, bad) = (App::start().await, Receiver::start().await, Receiver::start().await);
    app.subscribe(&good.url("/hook"), one_attempt()).await;
    app.subscribe(&bad.url("/hook"), one_attempt()).await;
    let event = app.publish_and_fail(&bad, "order.paid", json!(1)).await;
    app.operate(event, "cancel").await.problem(409, "wrong_state");
    assert_eq!(app.operate(event, "retry").await.expect(200).json()["status"], "PENDING");
    until("it was taken", async || app.status(event).await == "COMPLETED").await;
    assert_eq!((good.count(), bad.count()), (1, 2));
    app.operate(event, "retry").await.problem(409, "wrong_state");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_includes_events_that_are_only_pushed() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let pushed = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let pulled = app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    app.claim("a", "w:1").await.expect("an event");
    app.fail(pulled, "w:1").await.expect(400);
    assert_eq!(app.dry_run("/events/retry", json!({})).await["matched"], 2);
    assert_eq!(app.operate_on_all("/events/retry", json!({})).await, 2);
    assert_eq!(app.status(pulled).await, "PENDING");
    until("it was taken", async || app.status(pushed).await == "COMPLETED").await;
    ledger::check(&app).await;
}
