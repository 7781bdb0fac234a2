//! Events that expire before a worker claims them.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::work::W1;
use crate::support::{App, ledger};

fn expiring(app: &App, seconds: i64) -> Value {
    json!({"title": "a job", "tags": "a", "expires_at": app.now() + TimeDelta::seconds(seconds)})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unclaimed_event_fails_as_expired() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(expiring(&app, 10)).await;
    app.advance(9);
    assert_eq!(app.expire().await, 0);
    app.advance(1);
    assert_eq!(app.expire().await, 1);
    assert_eq!(app.status(id).await, "FAILED");
    assert_eq!(app.actions(id).await, ["EXPIRED"]);
    assert!(app.claim("a", W1).await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_event_expires_while_it_waits() {
    let app = App::with_fixed_clock().await;
    let mut event = expiring(&app, 10);
    event["delay_seconds"] = json!(20);
    let id = app.publish(event).await;
    app.advance(10);
    assert_eq!(app.expire().await, 1);
    assert_eq!(app.advance_and_promote(10).await, 0);
    assert_eq!(app.status(id).await, "FAILED");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_event_does_not_expire() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(expiring(&app, 10)).await;
    app.claim_one("a", W1).await;
    app.advance(60);
    assert_eq!(app.expire().await, 0);
    app.complete(id, W1).await.expect(200);
    assert_eq!(app.status(id).await, "COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_expired_events_are_all_swept_in_one_run() {
    let app = App::with_fixed_clock().await;
    for _ in 0..2 {
        let events: Vec<Value> = (0..600).map(|_| expiring(&app, 10)).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
    }
    app.advance(10);
    assert_eq!(app.expire().await, 1200);
    assert_eq!(app.count("SELECT count(*) FROM waybill.ready").await, 0);
    ledger::check(&app).await;
}
