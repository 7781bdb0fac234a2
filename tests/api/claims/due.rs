//! When work may be claimed: not before it is due, and not after it has expired.

use chrono::{SecondsFormat, TimeDelta};
use serde_json::json;

use crate::support::work::W1;
use crate::support::{App, Options, ledger};

fn in_seconds(app: &App, seconds: i64) -> String {
    (app.now() + TimeDelta::seconds(seconds)).to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_event_appears_when_it_is_due_and_not_a_second_before() {
    let app = App::with_fixed_clock().await;
    let by_delay = app.publish(json!({"title": "a job", "tags": "a", "delay_seconds": 60})).await;
    let by_time = app.publish(json!({"title": "a job", "tags": "a", "run_at": in_seconds(&app, 60)})).await;
    assert_eq!(app.advance_and_promote(59).await, 0);
    assert!(app.claim("a", W1).await.is_none());
    assert_eq!(app.advance_and_promote(1).await, 2);
    assert_eq!(app.drain("a", W1).await, [by_delay, by_time]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_scheduled_in_the_past_is_ready_at_once() {
    let app = App::with_fixed_clock().await;
    let past = app.publish(json!({"title": "a job", "tags": "a", "run_at": in_seconds(&app, -60)})).await;
    let now = app.publish(json!({"title": "a job", "tags": "a", "delay_seconds": 0})).await;
    assert_eq!(app.drain("a", W1).await, [past, now]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_promoted_together_are_claimed_in_the_order_of_their_due_times() {
    let app = App::with_fixed_clock().await;
    let third = app.publish(json!({"title": "a job", "tags": "a", "delay_seconds": 30})).await;
    let first = app.publish(json!({"title": "a job", "tags": "a", "delay_seconds": 10})).await;
    let second = app.publish(json!({"title": "a job", "tags": "a", "delay_seconds": 20})).await;
    assert_eq!(app.advance_and_promote(60).await, 3);
    assert_eq!(app.drain("a", W1).await, [first, second, third]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_can_be_claimed_when_it_is_due_and_not_a_second_before() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let failed = app.fail(id, W1).await.expect(200).json();
    assert_eq!(app.seconds_ahead(&failed["next_retry_at"]), 300);
    assert_eq!(app.event(id).await["next_retry_at"], failed["next_retry_at"]);
    assert_eq!(app.advance_and_promote(299).await, 0);
    assert!(app.claim("a", W1).await.is_none());
    assert_eq!(app.advance_and_promote(1).await, 1);
    assert_eq!(app.claim_one("a", W1).await.event_id, id);
    assert!(app.event(id).await["next_retry_at"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn more_due_events_than_one_statement_takes_are_promoted_in_one_run() {
    let app = App::with_fixed_clock().await;
    for _ in 0..2 {
        let events: Vec<_> = (0..600).map(|_| json!({"title": "a job", "tags": "a", "delay_seconds": 5})).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
    }
    assert_eq!(app.advance_and_promote(5).await, 1200);
    assert_eq!(app.promote().await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_event_is_not_handed_out_even_if_it_is_not_yet_swept() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(json!({"title": "a job", "tags": "a", "expires_at": in_seconds(&app, 10)})).await;
    app.advance(10);
    assert!(app.claim("a", W1).await.is_none());
    assert_eq!(app.status(id).await, "FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_can_be_claimed_up_to_its_last_second() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(json!({"title": "a job", "tags": "a", "expires_at": in_seconds(&app, 10)})).await;
    app.advance(9);
    app.expire().await;
    app.claim_one("a", W1).await;
    app.advance(60);
    app.expire().await;
    app.complete(id, W1).await.expect(200);
    assert_eq!(app.status(id).await, "COMPLETED");
    ledger::check(&app).await;
}

/// Publishes one event that can be claimed behind 1,200 events that have expired and are not yet
/// swept.
async fn publish_behind_expired(app: &App) -> i64 {
    let expires_at = in_seconds(app, 10);
    for _ in 0..2 {
        let events: Vec<_> = (0..600).map(|_| json!({"title": "old", "tags": "a", "expires_at": expires_at})).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
    }
    app.advance(10);
    app.publish_tagged("a").await
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_events_do_not_hide_claimable_events_behind_them() {
    let app = App::with_fixed_clock().await;
    let fresh = publish_behind_expired(&app).await;
    assert_eq!(app.claim_one("a", W1).await.event_id, fresh);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_one_connection_gets_past_expired_events() {
    let flags = vec!["--db-connections=1".into()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    let fresh = publish_behind_expired(&app).await;
    assert_eq!(app.claim("a", W1).await.expect("an event")["id"], fresh);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_events_do_not_hide_claimable_events_from_a_claim_with_an_idempotency_key() {
    let app = App::with_fixed_clock().await;
    let fresh = publish_behind_expired(&app).await;
    let body = json!({"tags": ["a"], "worker_id": W1, "idempotency_key": "r1"});
    assert_eq!(app.post("/events/claim", &body).await.expect(200).json()["events"][0]["id"], fresh);
    ledger::check(&app).await;
}

/// Scans start at the earliest known due time. Work that becomes due earlier than that must not be
/// skipped.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_becomes_due_before_all_other_work_is_found_in_time() {
    let app = App::with_fixed_clock().await;
    app.publish(json!({"title": "late", "tags": "late", "delay_seconds": 100, "expires_at": in_seconds(&app, 200)}))
        .await;
    app.publish_tagged("a").await;
    let failing = app.claim_one("a", W1).await;
    app.publish_tagged("b").await;
    let held = app.claim_one("b", W1).await;
    assert_eq!((app.promote().await, app.expire().await, app.reap().await), (0, 0, 0));

    app.publish(json!({"title": "soon", "tags": "soon", "delay_seconds": 5})).await;
    app.publish(json!({"title": "brief", "tags": "brief", "expires_at": in_seconds(&app, 5)})).await;
    app.settle_with(&failing, "fail", json!({"retry_after_seconds": 4})).await.expect(200);
    app.settle_with(&held, "heartbeat", json!({"lease_seconds": 5})).await.expect(200);
    app.advance(5);
    assert_eq!((app.promote().await, app.expire().await, app.reap().await), (2, 1, 1));
}
