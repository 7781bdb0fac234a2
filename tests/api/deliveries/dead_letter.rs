//! `POST /deliveries/{id}/dead-letter`.

use serde_json::json;
use waybill::domain::ids::{DeliveryId, NamespaceId};
use waybill::domain::scope::Scope;

use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_dead_letter_a_pending_push() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    let event = app.publish_typed("order.paid", json!({"n": 1})).await;
    let id = app.only_delivery(event).await;
    let reason = json!("the customer has left");
    let delivery = app.dead_letter(id, "the+customer+has+left").await.expect(200).json();
    assert_eq!((&delivery["status"], &delivery["last_error"]), (&json!("FAILED"), &reason));
    let letter = app.open_dead_letter(event).await;
    assert_eq!((&letter["reason"], &letter["actor"]), (&json!("manual"), &json!(null)));
    assert_eq!((&letter["detail"], &letter["attempts"]), (&reason, &json!([])));
    assert_eq!((&letter["delivery_id"], &letter["event"]["payload"]), (&json!(id), &json!({"n": 1})));
    assert_eq!(app.actions(event).await, ["DEAD_LETTERED"]);
    assert_eq!(app.event(event).await["logs"][0]["reason"], reason);
    assert_eq!(app.status(event).await, "FAILED");
    let problem = app.dead_letter(id, "again").await.problem(409, "wrong_state");
    assert_eq!(problem["current_status"], "FAILED");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_names_who_moved_it_and_who_retried_it() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = DeliveryId(app.only_delivery(event).await);
    let by = |actor: &str| Scope { actor: Some(actor.into()), ..app.engine().scope_of(NamespaceId::DEFAULT) };
    app.engine().dead_letter_delivery(by("ada"), id, "left".into()).await.expect("a dead letter");
    assert_eq!(app.open_dead_letter(event).await["actor"], "ada");
    app.engine().retry_delivery(by("grace"), id, None).await.expect("a retry");
    let letter = app.dead_letters(&format!("event_id={event}")).await.remove(0);
    assert_eq!((&letter["actor"], &letter["replay"]["actor"]), (&json!("ada"), &json!("grace")));
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
    app.dead_letter(id, "too_slow").await.problem(409, "wrong_state");
    gate.open();
    app.until_delivery(id, "COMPLETED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_lettering_a_push_requires_a_reason_in_the_query() {
    let app = App::start().await;
    app.post_empty("/deliveries/1/dead-letter").await.names(&["reason"]);
    app.post_empty("/deliveries/1/dead-letter?reason=&a=1").await.names(&["reason", "a"]);
    app.dead_letter(1, &"x".repeat(256)).await.names(&["reason"]);
    app.post("/deliveries/1/dead-letter?reason=r", &json!({"reason": "r"})).await.names(&["reason"]);
    app.dead_letter(4711, "r").await.problem(404, "delivery_not_found");
}
