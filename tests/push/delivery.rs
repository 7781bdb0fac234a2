//! What a subscriber receives.

use serde_json::json;

use super::publish;
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_pushed_to_subscribers_of_its_type() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["user.*"]})).await;
    let event = publish(&app, "user.created", json!({"n": 1})).await;
    assert_eq!(event["enqueued"], 1);
    assert_eq!(event["status"], "PENDING");
    let request = receiver.received(1).await.remove(0);
    assert_eq!(request.text(), r#"{"n":1}"#);
    let id = event["id"].as_i64().unwrap();
    until("the event is done", async || app.event(id).await["status"] == "COMPLETED").await;
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_push_is_retried_and_then_fails_permanently() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let backoff = json!({"strategy": "fixed", "seconds": 0});
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 2, "backoff": backoff})).await;
    let id = publish(&app, "user.created", json!(1)).await["id"].as_i64().unwrap();
    until("the event has failed", async || app.event(id).await["status"] == "FAILED").await;
    assert_eq!(app.actions(id).await, ["PICKED", "FAILED", "PICKED", "FAILED", "DEAD_LETTERED"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.dead_letters").await, 1);
    ledger::check(&app).await;
}
