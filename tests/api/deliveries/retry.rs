//! `POST /deliveries/{id}/retry`.

use serde_json::json;
use waybill::background::subscription_drainer;

use crate::support::receiver::{Receiver, Reply};
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn retrying_a_failed_push_sends_it_again_and_closes_its_dead_letter() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!({"n": 1})).await;
    let id = app.only_delivery(event).await;
    let retried = app.post_empty(&format!("/deliveries/{id}/retry?reason=mended")).await.expect(200).json();
    assert_eq!((&retried["status"], &retried["attempts_made"]), (&json!("PENDING"), &json!(0)));
    let delivery = app.until_delivery(id, "COMPLETED").await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 2, "the first attempt is still recorded");
    assert_eq!(app.actions(event).await, ["PICKED", "FAILED", "DEAD_LETTERED", "RETRIED", "PICKED", "COMPLETED"]);
    assert_eq!(app.status(event).await, "COMPLETED");
    let letters = app.dead_letters(&format!("event_id={event}")).await;
    let replay = &letters[0]["replay"];
    assert!(replay["replayed_at"].is_string(), "{replay}");
    assert_eq!((&replay["config"], &replay["reason"]), (&json!("current"), &json!("mended")));
    assert_eq!(receiver.so_far()[1].text(), r#"{"n":1}"#);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_push_can_be_retried() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    app.operate_on_delivery(id, "retry").await.problem(409, "wrong_state");
    app.operate_on_delivery(id, "cancel").await.expect(200);
    assert_eq!(app.operate_on_delivery(id, "retry").await.expect(200).json()["status"], "PENDING");
    assert_eq!(app.status(event).await, "PENDING");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivered_push_cannot_be_retried() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    app.until_delivery(id, "COMPLETED").await;
    let problem = app.operate_on_delivery(id, "retry").await.problem(409, "wrong_state");
    assert_eq!(problem["current_status"], "COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_subscription_is_deleted_cannot_be_retried() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let subscription = app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    app.delete(&format!("/subscriptions/{}", subscription["id"])).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");
    app.operate_on_delivery(id, "retry").await.problem(409, "wrong_state");
    app.operate(event, "retry").await.problem(409, "wrong_state");
    assert_eq!(app.operate_on_all("/events/retry", json!({})).await, 0);
    assert_eq!(app.operate_on_all("/deliveries/retry", json!({})).await, 0);
    ledger::check(&app).await;
}
