//! `POST /events/{id}/retry` and `POST /events/retry`.

use serde_json::{Value, json};

use crate::support::work::{W1, W2};
use crate::support::{App, ledger};

/// Publishes an event and fails it permanently.
async fn failed(app: &App, event: Value) -> i64 {
    let tags = event["tags"].as_str().expect("tags").to_owned();
    let id = app.publish(event).await;
    app.claim_one(&tags, W1).await;
    app.post(&format!("/events/{id}/fail"), &json!({"worker_id": W1, "retryable": false})).await.expect(400);
    id
}

/// Retries all events that match a filter. Returns their number.
async fn retry_all(app: &App, filter: Value) -> i64 {
    app.operate_on_all("/events/retry", filter).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_event_keeps_its_log_and_has_its_counters_reset() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    for _ in 0..3 {
        app.claim_one("a", W1).await;
        app.fail(id, W1).await;
        app.advance_and_promote(300).await;
    }
    let event = app.post_empty(&format!("/events/{id}/retry?reason=fixed")).await.expect(200).json();
    assert_eq!((&event["status"], &event["retry_count"]), (&"PENDING".into(), &0.into()));
    let log = app.event(id).await["logs"].clone();
    assert_eq!((&log[6]["action"], &log[6]["reason"]), (&"RETRIED".into(), &"fixed".into()));
    for attempt in 1..=2 {
        assert_eq!(app.claim("a", W1).await.expect("it is back")["attempt"], attempt);
        app.fail(id, W1).await.expect(200);
        app.advance_and_promote(300).await;
    }
    app.claim_one("a", W1).await;
    app.fail(id, W1).await.problem(400, "max_retries_exceeded");
    assert_eq!(app.event(id).await["logs"].as_array().map(Vec::len), Some(13));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_event_can_be_retried() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    app.operate(id, "cancel").await.expect(200);
    let event = app.operate(id, "retry").await.expect(200).json();
    assert_eq!((&event["status"], &event["cancel_requested"]), (&"PENDING".into(), &false.into()));
    assert_eq!(app.claim_one("a", W1).await.event_id, id);
    assert_eq!(app.actions(id).await, ["CANCELLED", "RETRIED", "PICKED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_event_that_is_retried_does_not_expire_again() {
    let app = App::with_fixed_clock().await;
    let expires_at = app.now() + chrono::TimeDelta::seconds(10);
    let id = app.publish(json!({"title": "a job", "tags": "a", "expires_at": expires_at})).await;
    app.advance(10);
    assert_eq!(app.expire().await, 1);
    app.operate(id, "retry").await.expect(200);
    assert_eq!(app.expire().await, 0);
    assert_eq!(app.claim_one("a", W1).await.event_id, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_finished_event_can_be_retried() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    app.operate(id, "retry").await.problem(409, "wrong_state");
    app.claim_one("a", W1).await;
    app.operate(id, "retry").await.problem(409, "wrong_state");
    app.complete(id, W1).await.expect(200);
    app.operate(id, "retry").await.problem(409, "wrong_state");
    app.operate(4_711, "retry").await.problem(404, "event_not_found");
    let push_only = app.publish(json!({"event_type": "order.paid"})).await;
    app.operate(push_only, "retry").await.problem(409, "wrong_state");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_takes_all_events_that_match_a_filter() {
    let app = App::start().await;
    let emails = [
        failed(&app, json!({"title": "m", "tags": "email"})).await,
        failed(&app, json!({"title": "m", "tags": "email,x"})).await,
    ];
    let sms = failed(&app, json!({"title": "s", "tags": "sms", "event_type": "sent", "correlation_id": "c1"})).await;
    let cancelled = app.publish_tagged("email").await;
    app.operate(cancelled, "cancel").await.expect(200);
    let failed_emails = json!({"tags": ["email"], "status": "FAILED"});
    let dry = app.dry_run("/events/retry", failed_emails.clone()).await;
    assert_eq!(
        (&dry["matched"], crate::support::work::ids(dry["sample"].as_array().expect("a sample"))),
        (&json!(2), emails.to_vec())
    );
    assert_eq!(app.status(emails[0]).await, "FAILED");
    assert_eq!(retry_all(&app, failed_emails).await, 2);
    assert_eq!(app.drain("email", W2).await, emails);
    assert_eq!(app.status(sms).await, "FAILED");
    for filter in [
        json!({"event_type": "none"}),
        json!({"correlation_id": "none"}),
        json!({"worker_id": "other:1"}),
        json!({"until": "2020-01-01T00:00:00Z"}),
        json!({"since": "2120-01-01T00:00:00Z"}),
    ] {
        assert_eq!(retry_all(&app, filter.clone()).await, 0, "{filter}");
    }
    let filter =
        json!({"event_type": "sent", "correlation_id": "c1", "worker_id": W1, "since": "2020-01-01T00:00:00Z"});
    assert_eq!(retry_all(&app, filter).await, 1);
    assert_eq!(retry_all(&app, json!({"status": "CANCELLED"})).await, 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_of_all_takes_failed_and_cancelled_events_in_the_order_of_their_ids() {
    let app = App::start().await;
    let first = failed(&app, json!({"title": "f", "tags": "a"})).await;
    let second = app.publish_tagged("a").await;
    app.operate(second, "cancel").await.expect(200);
    let third = failed(&app, json!({"title": "f", "tags": "a"})).await;
    let order = json!({"filter": {}, "reason": "fixed"});
    let started = app.start_operation("/events/retry", &order).await;
    assert_eq!(app.until_complete(&started).await["done"], 3);
    let line = app.event(second).await["logs"][1].clone();
    assert_eq!((&line["action"], &line["reason"]), (&json!("RETRIED"), &json!("fixed")));
    assert_eq!(app.drain("a", W2).await, [first, second, third]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_events_than_one_transaction_takes_are_all_retried() {
    let app = App::start().await;
    for _ in 0..2 {
        let events: Vec<Value> = (0..600).map(|_| json!({"title": "a job", "tags": "a"})).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
        let results: Vec<Value> = app
            .claim_batch("a", W1, 600)
            .await
            .iter()
            .map(|event| json!({"event_id": event["id"], "action": "fail", "retryable": false}))
            .collect();
        app.post("/events/settle", &json!({"worker_id": W1, "settlements": results})).await.expect(200);
    }
    assert_eq!(app.dry_run("/events/retry", json!({})).await["matched"], 1200);
    assert_eq!(retry_all(&app, json!({})).await, 1200);
    assert_eq!(retry_all(&app, json!({})).await, 0);
    ledger::check(&app).await;
}
