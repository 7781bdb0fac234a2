//! The wait itself: how it begins, how it ends, and how many workers may wait.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Waiter, flags, quiet, quiet_app};
use crate::support::{App, Options, within_patience};

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_work_ends_with_204_after_its_full_length() {
    let app = quiet_app().await;
    let sent_at = Instant::now();
    let reply = app.get("/events/subscribe?tags=a&worker_id=w:1&wait_seconds=1").await.expect(204);
    assert!(sent_at.elapsed() >= Duration::from_secs(1));
    assert_eq!(reply.text, "");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert!(app.engine().hub().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_may_be_a_fraction_of_a_second() {
    let app = quiet_app().await;
    let sent_at = Instant::now();
    app.get("/events/subscribe?tags=a&worker_id=w:1&wait_seconds=0.25").await.expect(204);
    let body = json!({"tags": ["a"], "worker_id": "w:1", "wait_seconds": 0.25});
    assert!(app.claim_by(&body).await.is_empty());
    let elapsed = sent_at.elapsed();
    assert!(elapsed >= Duration::from_millis(500) && elapsed < Duration::from_secs(2), "{elapsed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_does_not_wait_if_there_is_work() {
    let app = quiet_app().await;
    let id = app.publish_tagged("a").await;
    let reply = within_patience(app.get("/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60")).await;
    assert_eq!(reply.expect(200).json()["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_batch_claim_returns_as_soon_as_it_has_one_event() {
    let app = quiet_app().await;
    let body = json!({"tags": ["a"], "worker_id": "w:1", "wait_seconds": 60, "max": 10});
    let waiter = Waiter::post(&app, "/events/claim", &body).await;
    let id = app.publish_tagged("a").await;
    let events = waiter.event().await;
    assert_eq!(events["events"].as_array().expect("events").len(), 1);
    assert_eq!(events["events"][0]["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_with_an_idempotency_key_waits_too() {
    let app = quiet_app().await;
    let body = json!({"tags": ["a"], "worker_id": "w:1", "wait_seconds": 60, "idempotency_key": "r1"});
    let waiter = Waiter::post(&app, "/events/claim", &body).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(waiter.event().await["events"][0]["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_with_a_claim_is_committed_and_then_waits_for_an_event() {
    let app = quiet_app().await;
    let first = app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    let settlements = json!([{"event_id": first, "action": "complete"}]);
    let claim = json!({"tags": ["a"], "wait_seconds": 60});
    let body = json!({"worker_id": "w:1", "settlements": settlements, "claim": claim});
    let waiter = Waiter::post(&app, "/events/settle", &body).await;
    assert_eq!(app.event(first).await["status"], "COMPLETED");
    let second = app.publish_tagged("a").await;
    let answer = waiter.event().await;
    let (settled, claimed) = (&answer["results"][0]["event_id"], &answer["events"][0]["id"]);
    assert_eq!((settled, claimed), (&json!(first), &json!(second)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_a_429_if_too_many_workers_wait_and_the_waiting_ones_keep_waiting() {
    let app = App::start_with(Options { flags: [quiet(), flags("--max-waiting 1")].concat(), ..Options::default() });
    let app = app.await;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    let reply = within_patience(app.get("/events/subscribe?tags=a&worker_id=w:2&wait_seconds=60")).await;
    assert_eq!(reply.header("retry-after"), Some("1"));
    reply.problem(429, "overloaded");
    assert_eq!(app.claim("a", "w:3").await, None, "a claim without a wait needs no place");
    app.publish_tagged("a").await;
    assert_eq!(waiter.event().await["worker_id"], "w:1");
    Waiter::enter(&app, "a", "w:2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_stands_if_too_many_workers_wait_for_its_claim_to_wait_too() {
    let app = App::start_with(Options { flags: [quiet(), flags("--max-waiting 1")].concat(), ..Options::default() });
    let app = app.await;
    let id = app.publish_tagged("a").await;
    app.claim("a", "w:2").await.expect("an event");
    let _waiter = Waiter::enter(&app, "a", "w:1").await;
    let settlements = json!([{"event_id": id, "action": "complete"}]);
    let claim = json!({"tags": ["a"], "wait_seconds": 60});
    let body = json!({"worker_id": "w:2", "settlements": settlements, "claim": claim});
    let answer = within_patience(app.post("/events/settle", &body)).await.expect(200).json();
    assert_eq!((&answer["results"][0]["accepted"], &answer["events"]), (&json!(true), &json!([])));
    assert_eq!(answer["claim_problem"]["code"], "overloaded");
    assert_eq!(answer["claim_problem"].get("status"), None);
    assert_eq!(app.event(id).await["status"], "COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answers_a_waiting_settlement_with_its_results() {
    let app = quiet_app().await;
    let id = app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    let settlements = json!([{"event_id": id, "action": "complete"}]);
    let claim = json!({"tags": ["a"], "wait_seconds": 60});
    let body = json!({"worker_id": "w:1", "settlements": settlements, "claim": claim});
    let waiter = Waiter::post(&app, "/events/settle", &body).await;
    within_patience(app.stop()).await;
    let answer = waiter.reply().await.expect(200).json();
    assert_eq!((&answer["results"][0]["accepted"], &answer["events"]), (&json!(true), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answers_waiting_workers_with_204() {
    let app = quiet_app().await;
    let waiters = [Waiter::enter(&app, "a", "w:1").await, Waiter::enter(&app, "b", "w:2").await];
    within_patience(app.stop()).await;
    for waiter in waiters {
        waiter.reply().await.expect(204);
    }
}
