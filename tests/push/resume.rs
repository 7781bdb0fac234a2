//! `POST /subscriptions/{id}/resume`: an operator lifts a pause and closes a breaker.

use serde_json::{Value, json};

use super::by_hand::{dispatch_and_finish, dispatcher, idle};
use super::{attempt, endpoint, id_of, publish_id, rows, second_server, until_status, with_flags};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, ledger, until};

/// Servers poll too seldom for a poll to explain what is sent in these tests.
const POLL_SELDOM: &str = "--poll-interval-ms=60000";

async fn resume(app: &App, subscription: &Value) -> Value {
    app.post_empty(&format!("/subscriptions/{}/resume", id_of(subscription))).await.expect(200).json()
}

/// Creates an endpoint that has asked for a very long pause. Returns the subscription and the
/// refused event.
async fn paused(app: &App, receiver: &Receiver) -> (Value, i64) {
    receiver.next(Reply::too_many_requests("99999999999"));
    // A round of the dispatcher that began before the pause was recorded does not know of it. The backoff
    // keeps the event from that round.
    let backoff = json!({"strategy": "fixed", "seconds": 0.3});
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"backoff": backoff})).await;
    let turned_away = publish_id(app, "a").await;
    attempt(app, turned_away, 1).await;
    assert!(endpoint(app, &subscription).await["paused_until"].is_string());
    (subscription, turned_away)
}

fn closed() -> Value {
    json!({"breaker": "closed", "failures_in_row": 0, "paused_until": null})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_sends_everything_at_once() {
    let (app, receiver) = (with_flags(&[POLL_SELDOM]).await, Receiver::start().await);
    let (subscription, turned_away) = paused(&app, &receiver).await;
    let waiting = publish_id(&app, "a").await;
    let view = resume(&app, &subscription).await;
    assert_eq!((&view["id"], &view["endpoint"]), (&subscription["id"], &closed()));
    until_status(&app, turned_away, "COMPLETED").await;
    until_status(&app, waiting, "COMPLETED").await;
    assert_eq!(receiver.count(), 3);
    assert_eq!(view["version"], 1, "the subscription itself is unchanged");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_its_subscription_and_another_subscription_can_resume_it() {
    let (app, receiver) = (with_flags(&[POLL_SELDOM]).await, Receiver::start().await);
    let (subscription, _) = paused(&app, &receiver).await;
    app.delete(&format!("/subscriptions/{}", id_of(&subscription))).await.expect(204);
    let next = app.subscribe(&receiver.url("/hook"), json!({})).await;
    assert!(endpoint(&app, &next).await["paused_until"].is_string());
    let id = publish_id(&app, "a").await;
    resume(&app, &next).await;
    until_status(&app, id, "COMPLETED").await;
}

/// Without a signal, another subscription of the URL would be checked again only after a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_resume_applies_to_every_subscription_of_the_url() {
    let (app, receiver) = (with_flags(&[POLL_SELDOM]).await, Receiver::start().await);
    let (subscription, _) = paused(&app, &receiver).await;
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["b"]})).await;
    let id = publish_id(&app, "b").await;
    resume(&app, &subscription).await;
    until_status(&app, id, "COMPLETED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_resume_other_servers_send_at_once() {
    let (sender, receiver) = (with_flags(&[POLL_SELDOM]).await, Receiver::start().await);
    let front = second_server(&sender, &["--dispatch=false", POLL_SELDOM]).await;
    let (subscription, turned_away) = paused(&sender, &receiver).await;
    let waiting = publish_id(&sender, "a").await;
    resume(&front, &subscription).await;
    until_status(&sender, turned_away, "COMPLETED").await;
    until_status(&sender, waiting, "COMPLETED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_closes_the_breaker_and_notifies_subscribers() {
    let (app, receiver) = (idle(&["--breaker-failures=2"]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
    receiver.next(Reply::status(500));
    receiver.next(Reply::status(500));
    for _ in 0..2 {
        publish_id(&app, "a").await;
    }
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 2);
    for _ in 0..3 {
        publish_id(&app, "a").await;
    }
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 0);
    assert_eq!(endpoint(&app, &subscription).await["breaker"], "open");
    assert_eq!(resume(&app, &subscription).await["endpoint"], closed());
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 3, "no probe is sent first");
    let notices = "SELECT event_type FROM waybill.events WHERE event_type LIKE 'waybill.%' ORDER BY id";
    let types: Vec<Value> = rows(&app, notices).await.iter().map(|row| row["event_type"].clone()).collect();
    assert_eq!(types, ["waybill.subscription.breaker_opened", "waybill.subscription.breaker_closed"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_of_a_healthy_endpoint_changes_nothing() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"is_active": false})).await;
    for _ in 0..2 {
        let view = resume(&app, &subscription).await;
        assert_eq!((&view["endpoint"], &view["is_active"]), (&closed(), &json!(false)));
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0, "no subscriber is notified");
    app.post_empty("/subscriptions/987654/resume").await.problem(404, "subscription_not_found");
    let path = format!("/subscriptions/{}", id_of(&subscription));
    app.delete(&path).await.expect(204);
    app.post_empty(&format!("{path}/resume")).await.problem(404, "subscription_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_resets_the_count_of_failures() {
    let (app, receiver) = (with_flags(&["--breaker-failures=2"]).await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
    let fails = async || {
        let id = publish_id(&app, "a").await;
        attempt(&app, id, 1).await;
    };
    fails().await;
    assert_eq!(resume(&app, &subscription).await["endpoint"], closed());
    fails().await;
    assert_eq!(endpoint(&app, &subscription).await["breaker"], "closed");
    fails().await;
    until("it is open", async || endpoint(&app, &subscription).await["breaker"] == "open").await;
}
