//! Operators' verbs on events with very many pushes run in transactions of bounded size.

use serde_json::json;

use crate::support::locks::HeldRow;
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, Options, ledger};

const NOWHERE: &str = "http://127.0.0.1:9/hook";

/// The number of deliveries that one transaction may change.
const PER_TRANSACTION: i64 = 500;

/// Returns the most log lines of an action that one transaction has written, and their total.
async fn lines(app: &App, action: &str) -> (i64, i64) {
    let by_transaction =
        format!("(SELECT count(*) AS n FROM waybill.event_log WHERE action = '{action}' GROUP BY xmin::text) t");
    let most = app.count(&format!("SELECT coalesce(max(n), 0) FROM {by_transaction}")).await;
    (most, app.count(&format!("SELECT coalesce(sum(n), 0) FROM {by_transaction}")).await)
}

/// Retries all cancelled events. Returns their number.
async fn retry_cancelled(app: &App) -> i64 {
    app.operate_on_all("/events/retry", json!({"status": "CANCELLED"})).await
}

async fn count_pushes(app: &App, status: &str) -> i64 {
    let pushes = "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL";
    app.count(&format!("{pushes} AND status = '{status}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_bulk_work_are_bounded_by_deliveries_and_count_events() {
    let (events, pushes) = (6, 300);
    let app = app_that_sends_nothing().await;
    app.subscribe_many(pushes as usize, NOWHERE, json!({})).await;
    for _ in 0..events {
        app.publish(json!({"event_type": "order.paid"})).await;
    }
    assert_eq!(app.dry_run("/events/cancel", json!({})).await["matched"], events);
    assert_eq!(app.operate_on_all("/events/cancel", json!({})).await, events);
    assert_eq!(lines(&app, "CANCELLED").await, (pushes, events * pushes), "one event fits into a step");
    assert_eq!(retry_cancelled(&app).await, events);
    assert_eq!(lines(&app, "RETRIED").await, (pushes, events * pushes));
    assert_eq!(retry_cancelled(&app).await, 0);
    assert_eq!(count_pushes(&app, "PENDING").await, events * pushes);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_more_pushes_than_a_step_takes_is_counted_once() {
    let pushes = 1_200;
    let app = app_that_sends_nothing().await;
    app.subscribe_many(pushes as usize, NOWHERE, json!({"event_types": ["order.*"]})).await;
    let big = app.publish(json!({"event_type": "order.paid"})).await;
    let pulled = app.publish_tagged("a").await;
    assert_eq!(app.operate_on_all("/events/cancel", json!({})).await, 2);
    assert_eq!((app.status(big).await, app.status(pulled).await), ("CANCELLED".into(), "CANCELLED".into()));
    assert_eq!(lines(&app, "CANCELLED").await, (PER_TRANSACTION, pushes + 1));
    assert_eq!(retry_cancelled(&app).await, 2);
    assert_eq!(lines(&app, "RETRIED").await, (PER_TRANSACTION, pushes + 1));
    assert_eq!(count_pushes(&app, "PENDING").await, pushes);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_cancelled_while_it_is_being_retried_stays_cancelled() {
    let pushes = 30;
    let app =
        App::start_with(Options { flags: vec!["--dispatch=false".into()], fixed_clock: true, ..Options::default() })
            .await;
    app.subscribe_many(pushes as usize, NOWHERE, json!({})).await;
    let id = app.publish(json!({"event_type": "order.paid"})).await;
    app.operate(id, "cancel").await.expect(200);
    let started = app.start_operation("/events/retry", &json!({"filter": {}, "per_second": 100})).await;
    assert_eq!(app.run_steps().await, 10);
    assert_eq!((app.status(id).await, count_pushes(&app, "PENDING").await), ("PENDING".into(), 10));
    app.operate(id, "cancel").await.expect(200);
    let over = app.until_complete(&started).await;
    assert_eq!((&over["done"], &over["skipped"]), (&json!(1), &json!(0)), "a part was retried");
    assert_eq!((app.status(id).await, count_pushes(&app, "CANCELLED").await), ("CANCELLED".into(), pushes));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_many_pushes_is_cancelled_and_retried_in_several_transactions() {
    let pushes = 1_200;
    let app = app_that_sends_nothing().await;
    app.subscribe_many(pushes as usize, NOWHERE, json!({})).await;
    let id = app.publish(json!({"event_type": "order.paid"})).await;
    app.operate(id, "retry").await.problem(409, "wrong_state");
    app.operate(id, "reset").await.problem(409, "wrong_state");
    let cancelled = app.post_empty(&format!("/events/{id}/cancel?reason=obsolete")).await.expect(200).json();
    assert_eq!(cancelled["status"], "CANCELLED");
    assert_eq!(lines(&app, "CANCELLED").await, (PER_TRANSACTION, pushes));
    let retried = app.operate(id, "retry").await.expect(200).json();
    assert_eq!((&retried["status"], &retried["cancel_requested"]), (&json!("PENDING"), &json!(false)));
    assert_eq!(lines(&app, "RETRIED").await, (PER_TRANSACTION, pushes));
    app.operate(id, "retry").await.problem(409, "wrong_state");
    app.operate(id, "cancel").await.expect(200);
    assert_eq!(retry_cancelled(&app).await, 1);
    assert_eq!(lines(&app, "RETRIED").await, (PER_TRANSACTION, 2 * pushes));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_retry_continues_when_it_is_repeated() {
    let pushes = 1_200;
    let app = app_that_sends_nothing().await;
    app.subscribe_many(pushes as usize, NOWHERE, json!({})).await;
    let expires_at = chrono::Utc::now() - chrono::TimeDelta::seconds(1);
    let id = app.publish(json!({"event_type": "order.paid", "expires_at": expires_at})).await;
    app.expire().await;
    crate::support::until("all pushes have failed", async || app.status(id).await == "FAILED").await;
    // The second transaction cannot lock its rows.
    let of_event = format!("FROM waybill.deliveries WHERE event_id = {id} AND subscription_id IS NOT NULL");
    let push = app.count(&format!("SELECT id {of_event} ORDER BY id OFFSET 700 LIMIT 1")).await;
    let held = HeldRow::lock(&app, push).await;
    app.operate(id, "retry").await.problem(503, "outcome_unknown");
    held.unlock().await;
    assert_eq!((lines(&app, "RETRIED").await, app.status(id).await), ((500, 500), "PENDING".into()));
    app.operate(id, "retry").await.expect(200);
    assert_eq!(lines(&app, "RETRIED").await, (PER_TRANSACTION, pushes));
    assert_eq!(app.count(&format!("SELECT count(*) {of_event} AND status = 'PENDING'")).await, pushes);
    assert_eq!(app.count("SELECT count(*) FROM waybill.dead_letters WHERE replayed_at IS NULL").await, 0);
    ledger::check(&app).await;
}
