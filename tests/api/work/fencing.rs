//! Which settlements count: every row of the fencing table in the API's documentation, for
//! `complete` and `fail`, by `lease_id` and by `worker_id` alone.

use serde_json::{Value, json};

use crate::support::locks::HeldRow;
use crate::support::work::{Claim, Naming, W1, W2, repeated};
use crate::support::{App, ledger};

/// Both settlements, each identified in both ways.
const WAYS: [(&str, Naming); 4] =
    [("complete", Naming::Lease), ("complete", Naming::Worker), ("fail", Naming::Lease), ("fail", Naming::Worker)];

const BOTH: [Naming; 2] = [Naming::Lease, Naming::Worker];

/// Publishes an event and lets a worker claim it.
async fn held_by(app: &App, worker_id: &str) -> Claim {
    app.publish_tagged("a").await;
    app.claim_one("a", worker_id).await
}

/// Publishes an event that `worker_id` claims and an operator then resets.
async fn reset_from(app: &App, worker_id: &str) -> Claim {
    let claim = held_by(app, worker_id).await;
    app.operate(claim.event_id, "reset").await.expect(200);
    claim
}

fn other(verb: &str) -> &'static str {
    if verb == "complete" { "fail" } else { "complete" }
}

/// The log action of a settlement.
fn line_of(verb: &str) -> &'static str {
    if verb == "complete" { "COMPLETED" } else { "FAILED" }
}

/// The status of an event after a settlement, with attempts left.
fn status_after(verb: &str) -> &'static str {
    if verb == "complete" { "COMPLETED" } else { "PENDING" }
}

async fn lines(app: &App, id: i64, action: &str) -> Vec<Value> {
    let event = app.event(id).await;
    event["logs"].as_array().expect("logs").iter().filter(|line| line["action"] == action).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_of_the_current_claim_is_recorded() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = held_by(&app, W1).await;
        let entry = app.settle(&claim, verb, naming).await.expect(200).json();
        assert_eq!(entry["action"], line_of(verb));
        assert_eq!(entry["lease_id"], claim.lease_id);
        assert_eq!(app.status(claim.event_id).await, status_after(verb));
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", line_of(verb)]);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_settlement_gets_the_same_entry_and_writes_nothing() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = held_by(&app, W1).await;
        let first = app.settle(&claim, verb, naming).await.expect(200).json();
        app.advance(1);
        assert_eq!(app.settle(&claim, verb, naming).await.expect(200).json(), repeated(&first));
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", line_of(verb)]);
        let event = app.event(claim.event_id).await;
        assert_eq!(event["retry_count"], i32::from(verb == "fail"));
        assert_eq!(event["updated_at"], first["created_at"]);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_repeated_after_another_claim_gets_its_own_entry() {
    let app = App::with_fixed_clock().await;
    for naming in BOTH {
        let first = held_by(&app, W1).await;
        let entry = app.settle(&first, "fail", naming).await.expect(200).json();
        app.advance_and_promote(300).await;
        let second = app.claim_one("a", W2).await;
        assert_eq!(app.settle(&first, "fail", naming).await.expect(200).json(), repeated(&entry));
        app.settle(&second, "complete", naming).await.expect(200);
        assert_eq!(app.settle(&first, "fail", naming).await.expect(200).json(), repeated(&entry));
        assert_eq!(app.actions(first.event_id).await, ["PICKED", "FAILED", "PICKED", "COMPLETED"]);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_settlement_gets_the_entry_of_the_claim_that_it_names() {
    let app = App::with_fixed_clock().await;
    let first = held_by(&app, W1).await;
    let entry = app.settle_with(&first, "fail", json!({"error_message": "one"})).await.expect(200).json();
    app.advance_and_promote(300).await;
    let second = app.claim_one("a", W1).await;
    app.settle_with(&second, "fail", json!({"error_message": "two"})).await.expect(200);
    app.advance_and_promote(300).await;
    app.claim_one("a", W1).await;
    let again = app.settle_with(&first, "fail", json!({"error_message": "one"})).await.expect(200).json();
    assert_eq!(again, repeated(&entry));
    let again = app.settle_with(&second, "fail", json!({"error_message": "two"})).await.expect(200).json();
    assert_eq!((&again["error_message"], &again["lease_id"]), (&"two".into(), &second.lease_id.into()));
    assert_eq!(app.status(first.event_id).await, "PROCESSING");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_worker_failing_in_two_attempts_is_logged_twice() {
    let app = App::with_fixed_clock().await;
    for naming in BOTH {
        let first = held_by(&app, W1).await;
        app.settle(&first, "fail", naming).await.expect(200);
        app.advance_and_promote(300).await;
        let second = app.claim_one("a", W1).await;
        app.settle(&second, "fail", naming).await.expect(200);
        app.settle(&second, "fail", naming).await.expect(200);
        let failures = lines(&app, first.event_id, "FAILED").await;
        assert_eq!(failures.len(), 2);
        assert_eq!((&failures[0]["attempt"], &failures[1]["attempt"]), (&1.into(), &2.into()));
        app.operate(first.event_id, "cancel").await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_final_failure_is_the_same_entry_with_no_retry_scheduled() {
    let app = App::with_fixed_clock().await;
    for naming in BOTH {
        app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
        let claim = app.claim_one("a", W1).await;
        app.settle(&claim, "fail", naming).await.problem(400, "max_retries_exceeded");
        let again = app.settle(&claim, "fail", naming).await.expect(200).json();
        assert_eq!(again["retry_scheduled"], false);
        assert_eq!(
            vec![again["id"].clone()],
            lines(&app, claim.event_id, "FAILED").await.iter().map(|l| l["id"].clone()).collect::<Vec<_>>()
        );
        let event = app.event(claim.event_id).await;
        assert_eq!((&event["status"], &event["retry_count"]), (&"FAILED".into(), &1.into()));
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_opposite_settlement_of_a_settled_claim_is_refused() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = held_by(&app, W1).await;
        app.settle(&claim, verb, naming).await.expect(200);
        app.settle(&claim, other(verb), naming).await.problem(409, "already_settled");
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", line_of(verb)]);
        assert_eq!(app.status(claim.event_id).await, status_after(verb));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_after_a_final_failure_is_refused() {
    let app = App::with_fixed_clock().await;
    for naming in BOTH {
        let claim = held_by(&app, W1).await;
        app.settle_with(&claim, "fail", json!({"retryable": false})).await.problem(400, "not_retryable");
        app.settle(&claim, "complete", naming).await.problem(409, "already_settled");
        assert_eq!(app.status(claim.event_id).await, "FAILED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_opposite_settlement_is_refused_even_after_another_claim() {
    let app = App::with_fixed_clock().await;
    for naming in BOTH {
        let first = held_by(&app, W1).await;
        app.settle(&first, "fail", naming).await.expect(200);
        app.advance_and_promote(300).await;
        let second = app.claim_one("a", W2).await;
        app.settle(&first, "complete", naming).await.problem(409, "already_settled");
        app.settle(&second, "complete", naming).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_claim_cannot_be_settled() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = held_by(&app, W1).await;
        app.settle(&claim, "release", naming).await.expect(200);
        app.settle(&claim, verb, naming).await.problem(409, "already_settled");
        app.operate(claim.event_id, "cancel").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_after_an_operators_reset_is_accepted() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = reset_from(&app, W1).await;
        let entry = app.settle(&claim, verb, naming).await.expect(200).json();
        assert_eq!((&entry["lease_id"], &entry["worker_id"]), (&claim.lease_id.into(), &W1.into()));
        assert_eq!(app.status(claim.event_id).await, status_after(verb));
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", "RESET", line_of(verb)]);
        assert!(app.claim("a", W2).await.is_none(), "it was settled, and must not be handed out");
        assert_eq!(app.settle(&claim, verb, naming).await.expect(200).json(), repeated(&entry));
        app.settle(&claim, other(verb), naming).await.problem(409, "already_settled");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_after_the_expired_lease_was_reset_is_accepted() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = held_by(&app, W1).await;
        app.advance(300);
        assert_eq!(app.reap().await, 1);
        app.settle(&claim, verb, naming).await.expect(200);
        assert_eq!(app.status(claim.event_id).await, status_after(verb));
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", "RESET", line_of(verb)]);
        assert!(app.claim("a", W2).await.is_none());
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_is_accepted_if_the_expired_lease_is_not_yet_reset() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = held_by(&app, W1).await;
        app.advance(3_000);
        app.settle(&claim, verb, naming).await.expect(200);
        assert_eq!(app.reap().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_failure_counts_as_an_attempt_and_may_be_the_last() {
    let app = App::with_fixed_clock().await;
    for naming in BOTH {
        app.publish(json!({"title": "a job", "tags": "a", "max_retries": 2})).await;
        let first = app.claim_one("a", W1).await;
        app.operate(first.event_id, "reset").await.expect(200);
        let late = app.settle(&first, "fail", naming).await.expect(200).json();
        assert_eq!((&late["retry_scheduled"], &late["attempt"]), (&true.into(), &1.into()));
        assert_eq!(app.advance_and_promote(300).await, 1);
        let second = app.claim_one("a", W1).await;
        app.operate(second.event_id, "reset").await.expect(200);
        let last = app.settle(&second, "fail", naming).await.problem(400, "max_retries_exceeded");
        assert_eq!((&last["retry_count"], &last["max_retries"]), (&2.into(), &2.into()));
        assert_eq!(app.status(first.event_id).await, "FAILED");
        assert!(app.claim("a", W2).await.is_none());
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_is_refused_once_another_worker_holds_the_event() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let first = reset_from(&app, W1).await;
        let second = app.claim_one("a", W2).await;
        app.settle(&first, verb, naming).await.problem(409, "lease_lost");
        assert_eq!(app.actions(first.event_id).await, ["PICKED", "RESET", "PICKED"]);
        app.settle(&second, "complete", naming).await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_is_refused_if_another_worker_has_failed_since() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let first = reset_from(&app, W1).await;
        let second = app.claim_one("a", W2).await;
        app.settle(&second, "fail", naming).await.expect(200);
        app.settle(&first, verb, naming).await.problem(409, "lease_lost");
        assert_eq!(app.event(first.event_id).await["retry_count"], 1);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_claim_of_the_same_worker_cannot_be_settled() {
    let app = App::with_fixed_clock().await;
    for verb in ["complete", "fail"] {
        let first = reset_from(&app, W1).await;
        let second = app.claim_one("a", W1).await;
        app.settle(&first, verb, Naming::Lease).await.problem(409, "lease_lost");
        app.settle(&second, verb, Naming::Lease).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_held_the_event_is_refused() {
    let app = App::with_fixed_clock().await;
    for verb in ["complete", "fail"] {
        let claim = held_by(&app, W1).await;
        app.settle(&claim.as_worker(W2), verb, Naming::Worker).await.problem(409, "lease_lost");
        let invented = Claim { lease_id: 9_999, ..claim.clone() };
        app.settle(&invented, verb, Naming::Lease).await.problem(409, "lease_lost");
        assert_eq!(app.status(claim.event_id).await, "PROCESSING");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_is_refused_after_another_claim_finished_the_event() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        for ending in [json!({}), json!({"retryable": false})] {
            let first = reset_from(&app, W1).await;
            let second = app.claim_one("a", W2).await;
            let how = if ending.get("retryable").is_some() { "fail" } else { "complete" };
            app.settle_with(&second, how, ending).await;
            app.settle(&first, verb, naming).await.problem(409, "already_finished");
            assert_eq!(app.actions(first.event_id).await, ["PICKED", "RESET", "PICKED", line_of(how)]);
        }
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_of_a_cancelled_event_is_refused() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let claim = reset_from(&app, W1).await;
        app.operate(claim.event_id, "cancel").await.expect(200);
        app.settle(&claim, verb, naming).await.problem(409, "already_finished");
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", "RESET", "CANCELLED"]);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_of_an_unclaimed_event_is_refused() {
    let app = App::with_fixed_clock().await;
    for (verb, naming) in WAYS {
        let event_id = app.publish_tagged("a").await;
        let claim = Claim { event_id, lease_id: 1, worker_id: W1.into() };
        app.settle(&claim, verb, naming).await.problem(409, "not_claimed");
        assert_eq!(app.status(event_id).await, "PENDING");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_of_an_unknown_event_is_a_404() {
    let app = App::start().await;
    for (verb, naming) in WAYS {
        let claim = Claim { event_id: 4_711, lease_id: 1, worker_id: W1.into() };
        app.settle(&claim, verb, naming).await.problem(404, "event_not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_repeated_after_an_operators_retry_gets_its_own_entry() {
    let app = App::with_fixed_clock().await;
    for naming in BOTH {
        let claim = held_by(&app, W1).await;
        app.settle_with(&claim, "fail", json!({"retryable": false})).await.expect(400);
        app.operate(claim.event_id, "retry").await.expect(200);
        assert_eq!(app.settle(&claim, "fail", naming).await.expect(200).json()["retry_scheduled"], false);
        app.settle(&claim, "complete", naming).await.problem(409, "already_settled");
        assert_eq!(app.event(claim.event_id).await["retry_count"], 0);
        app.operate(claim.event_id, "cancel").await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_waits_for_a_concurrent_reset_is_accepted() {
    let app = App::start().await;
    let claim = held_by(&app, W1).await;
    let row = HeldRow::lock(&app, claim.event_id).await;
    let in_order = async {
        app.until_blocked_calls(1).await;
        let completing = app.settle(&claim, "complete", Naming::Lease);
        let release = async {
            app.until_blocked_calls(2).await;
            row.unlock().await;
        };
        tokio::join!(completing, release).0
    };
    let (reset, completed) = tokio::join!(app.operate(claim.event_id, "reset"), in_order);
    reset.expect(200);
    completed.expect(200);
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "RESET", "COMPLETED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_waits_for_a_concurrent_completion_is_refused() {
    let app = App::start().await;
    let claim = held_by(&app, W1).await;
    let row = HeldRow::lock(&app, claim.event_id).await;
    let in_order = async {
        app.until_blocked_calls(1).await;
        let resetting = app.operate(claim.event_id, "reset");
        let release = async {
            app.until_blocked_calls(2).await;
            row.unlock().await;
        };
        tokio::join!(resetting, release).0
    };
    let (completed, reset) = tokio::join!(app.settle(&claim, "complete", Naming::Lease), in_order);
    completed.expect(200);
    reset.problem(409, "wrong_state");
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "COMPLETED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_not_reset_while_its_completion_is_in_progress() {
    let app = App::with_fixed_clock().await;
    let claim = held_by(&app, W1).await;
    app.advance(300);
    let row = HeldRow::lock(&app, claim.event_id).await;
    let in_order = async {
        app.until_blocked_calls(1).await;
        let reaped = app.reap().await;
        row.unlock().await;
        reaped
    };
    let (completed, reaped) = tokio::join!(app.settle(&claim, "complete", Naming::Lease), in_order);
    completed.expect(200);
    assert_eq!(reaped, 0, "a locked row is skipped");
    app.advance(1);
    assert_eq!(app.reap().await, 0);
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "COMPLETED"]);
}
