//! `POST /deliveries/{id}/dead-letter`.

use serde_json::json;

use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_dead_letter_a_pending_push() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    let event = app.publish_typed("order.paid", json!({"n": 1})).await;
    let id = app.only_delivery(event).await;
    let body = json!({"by": "night shift", "reason": "the customer has left"});
    let delivery = app.post(&format!("/deliveries/{id}/dead-letter"), &body).await.expect(200).json();
    assert_eq!((&delivery["status"], &delivery["last_error"]), (&json!("FAILED"), &body["reason"]));
    let letter = app.open_dead_letter(event).await;
    assert_eq!((&letter["reason"], &letter["moved_by"]), (&json!("manual"), &body["by"]));
    assert_eq!((&letter["detail"], &letter["attempts"]), (&body["reason"], &json!([])));
    assert_eq!((&letter["delivery_id"], &letter["event"]["payload"]), (&json!(id), &json!({"n": 1})));
    assert_eq!(app.actions(event).await, ["DEAD_LETTERED"]);
    assert_eq!(app.status(event).await, "FAILED");
    app.post(&format!("/deliveries/{id}/dead-letter"), &body).await.problem(409, "wrong_state");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_in_flight_cannot_be_dead_lettered() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.next(Reply::ok().held_by(&gate));
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    receiver.until_in_flight(1).await;
    let body = json!({"by": "night shift", "reason": "too slow"});
    app.post(&format!("/deliveries/{id}/dead-letter"), &body).await.problem(409, "wrong_state");
    gate.open();
    app.until_delivery(id, "COMPLETED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_lettering_a_push_requires_a_name_and_a_reason() {
    let app = App::start().await;
    app.post("/deliveries/1/dead-letter", &json!({})).await.names(&["by", "reason"]);
    let long = "x".repeat(256);
    app.post("/deliveries/1/dead-letter", &json!({"by": long, "reason": "", "a": 1}))
        .await
        .names(&["by", "reason", "a"]);
    let body = json!({"by": "b", "reason": "r"});
    app.post("/deliveries/4711/dead-letter", &body).await.problem(404, "delivery_not_found");
}
