//! The wait itself: how it begins, how it ends, and how many workers may wait.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Waiter, flags, quiet, quiet_app};
use crate::support::{App, Options, within_patience};

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_work_ends_with_204_after_its_full_length() {
    let app = quiet_app().await;
    let sent_at = Instant::now();
    let reply = app.get("/events/subscribe?tags=a&worker_id=w:1&wait=1").await.expect(204);
    assert!(sent_at.elapsed() >= Duration::from_secs(1));
    assert_eq!(reply.text, "");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert!(app.engine().hub().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_does_not_wait_if_there_is_work() {
    let app = quiet_app().await;
    let id = app.publish_tagged("a").await;
    let reply = within_patience(app.get("/events/subscribe?tags=a&worker_id=w:1&wait=60")).await;
    assert_eq!(reply.expect(200).json()["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_batch_claim_returns_as_soon_as_it_has_one_event() {
    let app = quiet_app().await;
    let waiter = Waiter::enter_by(&app, "/events/subscribe?tags=a&worker_id=w:1&wait=60&max=10").await;
    let id = app.publish_tagged("a").await;
    let events = waiter.event().await;
    assert_eq!(events["events"].as_array().expect("events").len(), 1);
    assert_eq!(events["events"][0]["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_by_post_waits_too() {
    let app = quiet_app().await;
    let body = json!({"tags": ["a"], "worker_id": "w:1", "wait": 60, "request_id": "r1"});
    let waiter = Waiter::send(&app, app.client.post(format!("{}/events/claim", app.base)).json(&body)).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(waiter.event().await["events"][0]["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_with_next_waits_for_an_event() {
    let app = quiet_app().await;
    let first = app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    let path = format!("{}/events/{first}/complete?next=true&tags=a&wait=60", app.base);
    let waiter = Waiter::send(&app, app.client.post(path).json(&json!({"worker_id": "w:1"}))).await;
    assert_eq!(app.event(first).await["status"], "COMPLETED");
    let second = app.publish_tagged("a").await;
    let answer = waiter.event().await;
    assert_eq!((&answer["settled"]["event_id"], &answer["next"]["id"]), (&json!(first), &json!(second)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_a_429_if_too_many_workers_wait_and_the_waiting_ones_keep_waiting() {
    let app = App::start_with(Options { flags: [quiet(), flags("--max-waiting 1")].concat(), ..Options::default() });
    let app = app.await;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    let reply = within_patience(app.get("/events/subscribe?tags=a&worker_id=w:2&wait=60")).await;
    assert_eq!(reply.header("retry-after"), Some("1"));
    reply.problem(429, "overloaded");
    assert_eq!(app.claim("a", "w:3").await, None, "a claim without a wait needs no place");
    app.publish_tagged("a").await;
    assert_eq!(waiter.event().await["worker_id"], "w:1");
    Waiter::enter(&app, "a", "w:2").await;
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
