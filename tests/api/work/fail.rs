//! `POST /events/{id}/fail`: retries, and when they are due.

use serde_json::{Value, json};

use crate::support::work::{Naming, W1, time};
use crate::support::{App, Options, ledger};

/// Publishes an event with this backoff and fails it `failures` times, each time as soon as it is
/// due. Returns the waits in seconds.
async fn waits(app: &App, backoff: Value, failures: usize) -> Vec<i64> {
    app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1000, "backoff": backoff})).await;
    let mut waits = Vec::new();
    for _ in 0..failures {
        let claim = app.claim_one("a", W1).await;
        let entry = app.settle(&claim, "fail", Naming::Lease).await.expect(200).json();
        let wait = app.seconds_ahead(&entry["next_retry_at"]);
        if wait > 0 {
            assert_eq!(app.advance_and_promote(wait - 1).await, 0, "not a second before");
            assert_eq!(app.advance_and_promote(1).await, 1);
        }
        waits.push(wait);
    }
    let claim = app.claim_one("a", W1).await;
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    waits
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_backoff_is_always_the_same() {
    let app = App::with_fixed_clock().await;
    assert_eq!(waits(&app, json!({"strategy": "fixed", "seconds": 7}), 3).await, [7, 7, 7]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backoff_of_zero_seconds_retries_at_once() {
    let app = App::with_fixed_clock().await;
    assert_eq!(waits(&app, json!({"strategy": "fixed", "seconds": 0}), 3).await, [0, 0, 0]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exponential_backoff_doubles_up_to_its_cap() {
    let app = App::with_fixed_clock().await;
    let backoff = json!({"strategy": "exponential", "base_seconds": 5, "max_seconds": 60});
    assert_eq!(waits(&app, backoff, 6).await, [5, 10, 20, 40, 60, 60]);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_jitter_spreads_the_waits_between_zero_and_the_full_wait() {
    let app = App::with_fixed_clock().await;
    let backoff = json!({"strategy": "exponential", "base_seconds": 100, "max_seconds": 1000, "jitter": "full"});
    let mut seen = Vec::new();
    for _ in 0..20 {
        app.publish(json!({"title": "a job", "tags": "a", "backoff": backoff})).await;
        let claim = app.claim_one("a", W1).await;
        let entry = app.settle(&claim, "fail", Naming::Lease).await.expect(200).json();
        let wait = (time(&entry["next_retry_at"]) - time(&entry["created_at"])).num_milliseconds();
        assert!((0..=100_000).contains(&wait), "{wait}");
        seen.push(wait);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 1, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_repeats_its_last_wait() {
    let app = App::with_fixed_clock().await;
    let backoff = json!({"strategy": "schedule", "seconds": [5, 30, 300]});
    assert_eq!(waits(&app, backoff, 5).await, [5, 30, 300, 300, 300]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_backoff_uses_the_servers_default() {
    let flags = vec!["--backoff-seconds".into(), "42".into()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    assert_eq!(waits(&app, Value::Null, 2).await, [42, 42]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_can_choose_the_time_of_the_retry() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let first = app.claim_one("a", W1).await;
    let entry = app.settle_with(&first, "fail", json!({"retry_after_seconds": 17})).await.expect(200).json();
    assert_eq!(app.seconds_ahead(&entry["next_retry_at"]), 17);
    assert_eq!(app.advance_and_promote(16).await, 0);
    assert_eq!(app.advance_and_promote(1).await, 1);
    let second = app.claim_one("a", W1).await;
    let entry = app.settle_with(&second, "fail", json!({"retry_after_seconds": 0})).await.expect(200).json();
    assert_eq!((&entry["retry_scheduled"], app.seconds_ahead(&entry["next_retry_at"])), (&true.into(), 0));
    app.claim_one("a", W1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chosen_retry_time_does_not_add_an_attempt() {
    let app = App::with_fixed_clock().await;
    app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "fail", json!({"retry_after_seconds": 5})).await.problem(400, "max_retries_exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_is_not_retryable_ends_the_event() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let report = json!({"retryable": false, "error_message": "no such user", "status_code": 404});
    let body = app.settle_with(&claim, "fail", report).await.problem(400, "not_retryable");
    assert_eq!((&body["retry_count"], &body["max_retries"]), (&1.into(), &3.into()));
    let event = app.event(id).await;
    assert_eq!((&event["status"], &event["last_error"]), (&"FAILED".into(), &"no such user".into()));
    assert_eq!(event["logs"][1]["error_message"], "no such user");
    assert_eq!(event["logs"][1]["status_code"], 404);
    assert!(app.claim("a", W1).await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_response_to_a_final_failure_has_exactly_its_documented_shape() {
    let app = App::with_fixed_clock().await;
    app.publish(
        json!({"title": "a job", "tags": "a", "max_retries": 2, "backoff": {"strategy": "fixed", "seconds": 0}}),
    )
    .await;
    let first = app.claim_one("a", W1).await;
    app.settle(&first, "fail", Naming::Worker).await.expect(200);
    let last = app.claim_one("a", W1).await;
    let body = app.settle(&last, "fail", Naming::Worker).await.problem(400, "max_retries_exceeded");
    let mut members: Vec<&String> = body.as_object().expect("an object").keys().collect();
    members.sort_unstable();
    assert_eq!(
        members,
        ["code", "detail", "effect", "error", "max_retries", "retry_count", "retryable", "status", "title", "type"]
    );
    assert_eq!(body["error"], "Max retries exceeded");
    assert_eq!((&body["retry_count"], &body["max_retries"]), (&2.into(), &2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_a_report_are_kept_and_its_result_is_kept_verbatim() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let body = format!(
        r#"{{"worker_id":"{W1}","status_code":-7,"execution_time_ms":0,"result":{{"b":1.0,"a":12345678901234567890}}}}"#
    );
    let entry = app.post_text(&format!("/events/{id}/complete"), &body).await.expect(200).json();
    assert_eq!((&entry["status_code"], &entry["execution_time_ms"]), (&(-7).into(), &0.into()));
    let text = app.get(&format!("/events/{id}")).await.expect(200).text;
    assert!(text.contains(r#""result":{"b":1.0,"a":12345678901234567890}"#), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_of_a_report_are_refused_and_nothing_is_recorded() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    for (verb, name, value) in [
        ("complete", "execution_time_ms", json!(-1)),
        ("complete", "status_code", json!("200")),
        ("complete", "error_message", json!("not of a completion")),
        ("complete", "retryable", json!(true)),
        ("fail", "execution_time_ms", json!(1.5)),
        ("fail", "retryable", json!("no")),
        ("fail", "retry_after_seconds", json!(-1)),
        ("fail", "retry_after_seconds", json!(2_592_001)),
        ("fail", "error_message", json!("x".repeat(10_001))),
        ("fail", "error_message", json!("nul\u{0}")),
        ("fail", "result", json!({})),
        ("fail", "lease_id", json!(0)),
        ("fail", "worker_id", json!("worker")),
    ] {
        app.settle_with(&claim, verb, json!({name: value})).await.names(&[name]);
    }
    let too_large = json!({"result": "x".repeat(64 * 1024)});
    app.settle_with(&claim, "complete", too_large).await.problem(413, "payload_too_large");
    assert_eq!(app.actions(id).await, ["PICKED"]);
}
