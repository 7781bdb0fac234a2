//! Operators' verbs on events with very many pushes run in transactions of bounded size.

use serde_json::{Value, json};

use crate::support::locks::HeldRow;
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, ledger};

const NOWHERE: &str = "http://127.0.0.1:9/hook";

/// The number of deliveries that one transaction and one bulk call may change.
const PER_TRANSACTION: i64 = 500;
const PER_CALL: i64 = 10_000;

/// Returns the most log lines of an action that one transaction has written, and their total.
async fn lines(app: &App, action: &str) -> (i64, i64) {
    let by_transaction =
        format!("(SELECT count(*) AS n FROM waybill.event_log WHERE action = '{action}' GROUP BY xmin::text) t");
    let most = app.count(&format!("SELECT coalesce(max(n), 0) FROM {by_transaction}")).await;
    (most, app.count(&format!("SELECT coalesce(sum(n), 0) FROM {by_transaction}")).await)
}

async fn retry_cancelled(app: &App, more: &str) -> Value {
    app.post_empty(&format!("/events/retry?status=CANCELLED{more}")).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_is_bounded_by_deliveries_and_counts_events() {
    let (events, pushes) = (40, 300);
    let in_one_call = PER_CALL / pushes;
    let app = app_that_sends_nothing().await;
    app.subscribe_many(pushes as usize, NOWHERE, json!({})).await;
    for _ in 0..events {
        let id = app.publish(json!({"event_type": "order.paid"})).await;
        app.operate(id, "cancel").await.expect(200);
    }
    let dry = retry_cancelled(&app, "&dry_run=true").await;
    assert_eq!((dry["retried"].as_i64(), &dry["more"]), (Some(in_one_call), &json!(true)));
    assert_eq!(lines(&app, "RETRIED").await, (0, 0));

    let first = retry_cancelled(&app, "").await;
    assert_eq!((first["retried"].as_i64(), &first["more"]), (Some(in_one_call), &json!(true)));
    assert_eq!(lines(&app, "RETRIED").await, (PER_TRANSACTION, in_one_call * pushes));
    let second = retry_cancelled(&app, "").await;
    assert_eq!((second["retried"].as_i64(), &second["more"]), (Some(events - in_one_call), &json!(false)));
    assert_eq!(lines(&app, "RETRIED").await, (PER_TRANSACTION, events * pushes));
    assert_eq!(retry_cancelled(&app, "").await["retried"], 0);
    let open = "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL AND status = 'PENDING'";
    assert_eq!(app.count(open).await, events * pushes);
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
    assert_eq!(retry_cancelled(&app, "").await["retried"], 1);
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
