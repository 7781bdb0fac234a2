//! `POST /events/{id}/cancel`.

use serde_json::{Value, json};

use crate::support::work::{Claim, Naming, W1, W2, repeated};
use crate::support::{App, ledger};

/// Claims an event and then cancels it.
async fn held_and_cancelled(app: &App) -> Claim {
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let event = app.operate(id, "cancel").await.expect(200).json();
    assert_eq!((&event["status"], &event["cancel_requested"]), (&"PROCESSING".into(), &true.into()));
    claim
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_event_is_cancelled_and_never_handed_out() {
    let app = App::with_fixed_clock().await;
    let ready = app.publish_tagged("a").await;
    let delayed = app.publish(json!({"title": "a job", "tags": "a", "delay_seconds": 60})).await;
    let retrying = app.publish_tagged("b").await;
    app.claim_one("b", W1).await;
    app.fail(retrying, W1).await.expect(200);
    for id in [ready, delayed, retrying] {
        let event = app.post_empty(&format!("/events/{id}/cancel?reason=obsolete")).await.expect(200).json();
        assert_eq!((&event["status"], &event["next_retry_at"]), (&"CANCELLED".into(), &json!(null)));
        let line = app.event(id).await["logs"].as_array().expect("logs").last().expect("a line").clone();
        assert_eq!((&line["action"], &line["reason"]), (&"CANCELLED".into(), &"obsolete".into()));
    }
    assert_eq!(app.advance_and_promote(3_000).await, 0);
    assert!(app.claim("a,b", W1).await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_twice_succeeds_and_is_logged_once() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    app.operate(id, "cancel").await.expect(200);
    app.operate(id, "cancel").await.expect(200);
    assert_eq!(app.actions(id).await, ["CANCELLED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_event_that_a_worker_holds_may_still_be_completed() {
    let app = App::start().await;
    let claim = held_and_cancelled(&app).await;
    app.operate(claim.event_id, "cancel").await.expect(200);
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    assert_eq!(app.status(claim.event_id).await, "COMPLETED");
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "COMPLETED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_event_that_fails_becomes_cancelled() {
    let app = App::with_fixed_clock().await;
    let claim = held_and_cancelled(&app).await;
    let entry = app.settle(&claim, "fail", Naming::Lease).await.expect(200).json();
    assert_eq!((&entry["action"], &entry["retry_scheduled"]), (&"FAILED".into(), &false.into()));
    assert_eq!(app.settle(&claim, "fail", Naming::Lease).await.expect(200).json(), repeated(&entry));
    app.settle(&claim, "complete", Naming::Lease).await.problem(409, "already_settled");
    assert_eq!(app.status(claim.event_id).await, "CANCELLED");
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "FAILED", "CANCELLED"]);
    assert_eq!(app.advance_and_promote(300).await, 0);
    assert!(app.claim("a", W2).await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_event_that_is_released_reset_or_loses_its_lease_becomes_cancelled() {
    let app = App::with_fixed_clock().await;
    let released = held_and_cancelled(&app).await;
    app.settle(&released, "release", Naming::Lease).await.expect(200);
    let reset = held_and_cancelled(&app).await;
    assert_eq!(app.operate(reset.event_id, "reset").await.expect(200).json()["status"], "CANCELLED");
    let lost = held_and_cancelled(&app).await;
    app.advance(300);
    assert_eq!(app.reap().await, 1);
    for (claim, line) in [(&released, "RELEASED"), (&reset, "RESET"), (&lost, "RESET")] {
        assert_eq!(app.status(claim.event_id).await, "CANCELLED");
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", line, "CANCELLED"]);
    }
    app.settle(&lost, "complete", Naming::Lease).await.problem(409, "already_finished");
    assert!(app.claim("a", W2).await.is_none());
    ledger::check(&app).await;
}

/// Returns the action and the reason of the last line in an event's log.
async fn last_line(app: &App, id: i64) -> (Value, Value) {
    let line = app.event(id).await["logs"].as_array().expect("logs").last().expect("a line").clone();
    (line["action"].clone(), line["reason"].clone())
}

async fn cancel_because(app: &App, id: i64, reason: &str) {
    app.post_empty(&format!("/events/{id}/cancel?reason={reason}")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_for_cancelling_held_work_is_logged_however_it_ends() {
    let app = App::with_fixed_clock().await;
    for how in ["fail", "release", "reset", "lost"] {
        let claim = held_and_cancelled(&app).await;
        cancel_because(&app, claim.event_id, "obsolete").await;
        match how {
            "reset" => drop(app.operate(claim.event_id, "reset").await.expect(200)),
            "lost" => {
                app.advance(300);
                assert_eq!(app.reap().await, 1);
            }
            verb => drop(app.settle(&claim, verb, Naming::Lease).await.expect(200)),
        }
        assert_eq!(last_line(&app, claim.event_id).await, (json!("CANCELLED"), json!("obsolete")), "{how}");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_holds_a_cancelled_event_can_read_the_reason() {
    let app = App::with_fixed_clock().await;
    let claim = held_and_cancelled(&app).await;
    assert_eq!(app.event(claim.event_id).await["cancel_reason"], Value::Null, "no reason was given");
    let beat = app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200).json();
    assert_eq!((&beat["cancel_requested"], &beat["cancel_reason"]), (&true.into(), &Value::Null));
    cancel_because(&app, claim.event_id, "obsolete").await;
    assert_eq!(app.event(claim.event_id).await["cancel_reason"], "obsolete");
    let beat = app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200).json();
    assert_eq!((&beat["cancel_requested"], &beat["cancel_reason"]), (&true.into(), &"obsolete".into()));
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    assert_eq!(
        app.event(claim.event_id).await["cancel_reason"],
        "obsolete",
        "it was completed anyway, and the reason is kept"
    );
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_reason_counts_and_a_cancel_without_one_keeps_it() {
    let app = App::with_fixed_clock().await;
    let claim = held_and_cancelled(&app).await;
    cancel_because(&app, claim.event_id, "first").await;
    cancel_because(&app, claim.event_id, "second").await;
    app.operate(claim.event_id, "cancel").await.expect(200);
    app.settle(&claim, "fail", Naming::Lease).await.expect(200);
    assert_eq!(last_line(&app, claim.event_id).await, (json!("CANCELLED"), json!("second")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_clears_the_reason_of_an_earlier_cancel() {
    let app = App::with_fixed_clock().await;
    let claim = held_and_cancelled(&app).await;
    cancel_because(&app, claim.event_id, "obsolete").await;
    app.settle(&claim, "fail", Naming::Lease).await.expect(200);
    app.operate(claim.event_id, "retry").await.expect(200);
    assert_eq!(app.event(claim.event_id).await["cancel_reason"], Value::Null);
    let again = app.claim_one("a", W2).await;
    app.operate(again.event_id, "cancel").await.expect(200);
    app.settle(&again, "release", Naming::Lease).await.expect(200);
    assert_eq!(last_line(&app, claim.event_id).await, (json!("CANCELLED"), json!(null)));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_event_cannot_be_cancelled() {
    let app = App::start().await;
    let done = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    app.complete(done, W1).await.expect(200);
    app.operate(done, "cancel").await.problem(409, "wrong_state");
    let failed = app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    app.claim_one("a", W1).await;
    app.fail(failed, W1).await.expect(400);
    app.operate(failed, "cancel").await.problem(409, "wrong_state");
    app.operate(4_711, "cancel").await.problem(404, "event_not_found");
    let push_only = app.publish(json!({"event_type": "order.paid"})).await;
    app.operate(push_only, "cancel").await.problem(409, "wrong_state");
}
