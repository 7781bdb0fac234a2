//! Settlements that are sent again get the same entry if their content is the same, and are refused
//! if it is not. A worker must not believe its own result recorded when another one is.

use serde_json::{Value, json};

use crate::support::work::{Claim, Naming, W1, W2, repeated};
use crate::support::{App, database, ledger};

/// Publishes an event and lets a worker claim it.
async fn held_by(app: &App, worker_id: &str) -> Claim {
    app.publish_tagged("a").await;
    app.claim_one("a", worker_id).await
}

/// Publishes and claims an event with an ordering key, whose settlements always take the slow path.
async fn held_with_key(app: &App, worker_id: &str) -> Claim {
    app.publish(json!({"title": "a job", "tags": "a", "ordering_key": "k"})).await;
    app.claim_one("a", worker_id).await
}

/// Deletes the log, as when the partition of a day is dropped.
async fn delete_the_log(app: &App) {
    database::execute(&app.url, "TRUNCATE waybill.event_log").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_settlement_but_a_heartbeat_shows_whether_it_is_a_repeat() {
    let app = App::with_fixed_clock().await;
    let cases = [
        ("start", json!({})),
        ("complete", json!({"result": [1], "status_code": 0})),
        ("release", json!({"delay_seconds": 5})),
    ];
    let failure = ("fail", json!({"error_message": "no", "status_code": 7}));
    for (verb, more) in cases.into_iter().chain([failure]) {
        let claim = held_by(&app, W1).await;
        let first = app.settle_with(&claim, verb, more.clone()).await.expect(200).json();
        app.advance(1);
        let again = app.settle_with(&claim, verb, more).await.expect(200).json();
        assert_eq!(again, repeated(&first), "{verb}");
        assert_eq!(app.actions(claim.event_id).await.len(), 2, "{verb} is logged once");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_failure_is_a_400_once_and_then_a_repeat() {
    let app = App::with_fixed_clock().await;
    let claim = held_by(&app, W1).await;
    let report = json!({"retryable": false, "error_message": "gone"});
    app.settle_with(&claim, "fail", report.clone()).await.problem(400, "not_retryable");
    let again = app.settle_with(&claim, "fail", report).await.expect(200).json();
    assert_eq!((&again["repeated"], &again["retry_scheduled"]), (&true.into(), &false.into()));
    assert_eq!(again["error_message"], "gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_with_other_content_is_refused_and_changes_nothing() {
    let app = App::with_fixed_clock().await;
    let result = json!({"result": {"n": 1}, "status_code": 0});
    let failure = json!({"error_message": "no", "status_code": 7});
    for (verb, first, other) in [
        ("complete", result.clone(), json!({"result": {"n": 2}, "status_code": 0})),
        ("complete", result.clone(), json!({"status_code": 0})),
        ("complete", result.clone(), json!({"result": {"n": 1}})),
        ("complete", result, json!({"result": {"n": 1}, "status_code": 1})),
        ("complete", json!({}), json!({"result": {"n": 1}})),
        ("fail", failure.clone(), json!({"error_message": "yes", "status_code": 7})),
        ("fail", failure.clone(), json!({"status_code": 7})),
        ("fail", failure.clone(), json!({"error_message": "no", "status_code": 8})),
        ("fail", failure, json!({"error_message": "no", "status_code": 7, "retryable": false})),
        ("fail", json!({}), json!({"error_message": ""})),
    ] {
        for claim in [held_by(&app, W1).await, held_with_key(&app, W1).await] {
            app.settle_with(&claim, verb, first.clone()).await.expect(200);
            let before = app.event(claim.event_id).await;
            app.settle_with(&claim, verb, other.clone()).await.problem(409, "already_settled");
            assert_eq!(app.event(claim.event_id).await, before, "{verb} {first} {other}");
            app.settle_with(&claim, verb, first.clone()).await.expect(200);
            if verb == "fail" {
                app.operate(claim.event_id, "cancel").await.expect(200);
            }
        }
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_may_differ_in_a_repeat() {
    let app = App::with_fixed_clock().await;
    for (verb, first, again) in [
        ("complete", json!({"execution_time_ms": 5}), json!({"execution_time_ms": 7})),
        ("complete", json!({"execution_time_ms": 5}), json!({})),
        ("fail", json!({"execution_time_ms": 5, "retry_after_seconds": 60}), json!({"retry_after_seconds": 59})),
        ("release", json!({"delay_seconds": 60}), json!({"delay_seconds": 59})),
    ] {
        let claim = held_by(&app, W1).await;
        let first = app.settle_with(&claim, verb, first).await.expect(200).json();
        let again = app.settle_with(&claim, verb, again).await.expect(200).json();
        assert_eq!(again, repeated(&first));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_failure_is_compared_with_the_failure_of_its_own_claim() {
    let app = App::with_fixed_clock().await;
    let (one, two) = (json!({"error_message": "one"}), json!({"error_message": "two"}));
    let first = held_by(&app, W1).await;
    let entry = app.settle_with(&first, "fail", one.clone()).await.expect(200).json();
    app.advance_and_promote(300).await;
    let second = app.claim_one("a", W2).await;
    app.settle_with(&first, "fail", two.clone()).await.problem(409, "already_settled");
    app.settle_with(&second, "fail", two.clone()).await.expect(200);
    app.settle_with(&first, "fail", two).await.problem(409, "already_settled");
    let again = app.settle_with(&first, "fail", one).await.expect(200).json();
    assert_eq!(again, repeated(&entry));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_marks_its_repeats_and_refuses_other_content() {
    let app = App::with_fixed_clock().await;
    let claims = [held_by(&app, W1).await, held_by(&app, W1).await];
    let settlements = [
        claims[0].settlement("complete", json!({"result": 1})),
        claims[0].settlement("complete", json!({"result": 1})),
        claims[0].settlement("complete", json!({"result": 2})),
        claims[1].settlement("fail", json!({"error_message": "one"})),
        claims[1].settlement("fail", json!({"error_message": "two"})),
        claims[1].settlement("fail", json!({"error_message": "one"})),
    ];
    // In one transaction at first, and then against what it stored.
    for is_first_time in [true, false] {
        let results = app.settle_batch(W1, &settlements).await;
        let summary = |result: &Value| match result["accepted"].as_bool().expect("a boolean") {
            true => result["entry"]["repeated"].clone(),
            false => result["problem"]["code"].clone(),
        };
        let summaries: Vec<Value> = results.iter().map(summary).collect();
        let first = json!(!is_first_time);
        let refused = json!("already_settled");
        let again = json!(true);
        assert_eq!(summaries, [first.clone(), again.clone(), refused.clone(), first, refused, again]);
    }
    assert_eq!(app.event(claims[0].event_id).await["result"], 1);
    ledger::check(&app).await;
}

/// The response to a repeat whose log line is deleted.
fn pruned(claim: &Claim, action: &str) -> Value {
    json!({
        "event_id": claim.event_id, "worker_id": claim.worker_id, "action": action, "lease_id": claim.lease_id,
        "repeated": true,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_whose_log_line_is_deleted_is_answered_from_the_deliverys_row() {
    let app = App::with_fixed_clock().await;
    for (verb, action) in [("start", "STARTED"), ("complete", "COMPLETED"), ("release", "RELEASED")] {
        for naming in [Naming::Lease, Naming::Worker] {
            let claim = held_by(&app, W1).await;
            app.settle(&claim, verb, naming).await.expect(200);
            delete_the_log(&app).await;
            assert_eq!(app.settle(&claim, verb, naming).await.expect(200).json(), pruned(&claim, action));
            assert_eq!(app.actions(claim.event_id).await, [""; 0], "nothing is written");
            if verb != "complete" {
                app.operate(claim.event_id, "cancel").await.expect(200);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_failure_whose_log_line_is_deleted_shows_whether_it_is_retried() {
    let app = App::with_fixed_clock().await;
    let [retried, given_up] = [held_by(&app, W1).await, held_by(&app, W1).await];
    app.settle(&retried, "fail", Naming::Lease).await.expect(200);
    app.settle_with(&given_up, "fail", json!({"retryable": false})).await.expect(400);
    delete_the_log(&app).await;
    for (claim, is_retried) in [(&retried, true), (&given_up, false)] {
        let mut expected = pruned(claim, "FAILED");
        expected["retry_scheduled"] = is_retried.into();
        assert_eq!(app.settle(claim, "fail", Naming::Lease).await.expect(200).json(), expected);
        app.settle(claim, "complete", Naming::Lease).await.problem(409, "already_settled");
    }
    app.advance_and_promote(300).await;
    let second = app.claim_one("a", W2).await;
    assert_eq!(app.settle(&retried, "fail", Naming::Lease).await.expect(200).json()["repeated"], true);
    app.settle(&retried, "complete", Naming::Lease).await.problem(409, "already_settled");
    app.settle(&second, "complete", Naming::Lease).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_with_another_result_is_refused_even_if_the_log_line_is_deleted() {
    let app = App::start().await;
    for claim in [held_by(&app, W1).await, held_with_key(&app, W1).await] {
        app.settle_with(&claim, "complete", json!({"result": 1})).await.expect(200);
        delete_the_log(&app).await;
        app.settle_with(&claim, "complete", json!({"result": 2})).await.problem(409, "already_settled");
        app.settle_with(&claim, "complete", json!({})).await.problem(409, "already_settled");
        app.settle_with(&claim, "complete", json!({"result": 1})).await.expect(200);
        let stranger = claim.as_worker(W2);
        app.settle_with(&stranger, "complete", json!({"result": 1})).await.problem(409, "already_finished");
    }
}
