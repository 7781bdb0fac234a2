//! Notable events are one line each: retries, failures, expired leases, dead letters, breakers and operations.

use serde_json::{Value, json};

use super::{line_about, lines_about, start};
use crate::support::receiver::{Receiver, Reply};
use crate::support::until;

#[track_caller]
fn assert_fields(line: &Value, expected: Value) {
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&line[field], value, "{field} in {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_and_a_failure_for_good_are_one_line_each() {
    let (server, _) = start(&["--log-format", "json", "--backoff-seconds", "0"]).await;
    let app = &server.app;
    let id = app.publish(json!({"title": "t", "tags": "a", "max_retries": 2})).await;
    app.claim("a", "w:1").await.expect("an event");
    app.fail(id, "w:1").await.expect(200);
    app.claim("a", "w:1").await.expect("the same event");
    app.fail(id, "w:1").await.problem(400, "max_retries_exceeded");
    let line = line_about(&server, "a retry was scheduled").await;
    assert_fields(&line, json!({"event_id": id, "worker_id": "w:1", "attempt": 1, "namespace_id": 1, "level": "INFO"}));
    assert!(!line["next_attempt_at"].as_str().expect("a time").is_empty(), "{line}");
    let line = line_about(&server, "an event has failed for good").await;
    assert_fields(&line, json!({"event_id": id, "worker_id": "w:1", "attempt": 2, "next_attempt_at": ""}));
    assert_eq!(lines_about(&server, "a retry was scheduled").len(), 1);
    server.stop().await;
}

/// The HTTP library calls its threads workers, and so would count ours wrongly.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_start_tells_of_no_workers_but_ours() {
    for (filter, is_told) in [("info", false), ("info,actix_server=info", true)] {
        let (server, _) = start(&["--log", filter]).await;
        server.app.get("/health").await.expect(200);
        assert_eq!(server.stderr().contains("workers"), is_told, "{}", server.stderr());
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_cancelled_while_a_worker_held_it_is_not_said_to_have_failed() {
    let (server, _) = start(&["--log-format", "json"]).await;
    let app = &server.app;
    let id = app.publish(json!({"title": "t", "tags": "a", "max_retries": 1})).await;
    app.claim("a", "w:1").await.expect("an event");
    app.post_empty(&format!("/events/{id}/cancel")).await.expect(200);
    app.fail(id, "w:1").await;
    assert_eq!(app.status(id).await, "CANCELLED");
    let line = line_about(&server, "an event was cancelled, as requested while a worker held it").await;
    assert_fields(&line, json!({"event_id": id, "worker_id": "w:1", "attempt": 1, "level": "INFO"}));
    assert_eq!(lines_about(&server, "an event has failed for good").len(), 0);
    let metrics = app.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("\nwaybill_events_failed_total 0\n"), "{metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_and_a_poison_event_are_one_line_each() {
    let (server, _) = start(&["--log-format", "json", "--poison-after", "1"]).await;
    let app = &server.app;
    let id = app.publish_tagged("a").await;
    let claimed = app.get("/events/subscribe?tags=a&worker_id=w:1&lease_seconds=1").await.expect(200).json();
    let line = line_about(&server, "a lease expired, and its work was reset").await;
    assert_fields(&line, json!({"event_id": id, "lease_id": claimed["lease_id"], "actor": "server:lease_reaper"}));
    let line = line_about(&server, "an event was given up as poison").await;
    assert_fields(&line, json!({"event_id": id}));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn breakers_and_dead_letters_made_by_hand_are_one_line_each() {
    let flags = ["--log-format", "json", "--breaker-failures", "1", "--breaker-seconds", "1"];
    let (server, _) = start(&flags).await;
    let (app, receiver) = (&server.app, Receiver::start().await);
    let backoff = json!({"strategy": "fixed", "seconds": 0});
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["t"], "backoff": backoff, "max_attempts": 5})).await;
    receiver.next(Reply::status(500));
    receiver.next(Reply::ok());
    let event = app.publish_typed("t", json!({})).await;
    assert_fields(&line_about(&server, "the breaker opened").await, json!({"endpoint": receiver.url("/hook")}));
    assert_fields(&line_about(&server, "the breaker closed").await, json!({"endpoint": receiver.url("/hook")}));
    until("it is delivered", async || app.event(event).await["status"] == "COMPLETED").await;

    let nowhere = json!({"event_types": ["u"], "backoff": {"strategy": "fixed", "seconds": 3_600}});
    receiver.always(Reply::status(500));
    app.subscribe(&receiver.url("/other"), nowhere).await;
    let event = app.publish_typed("u", json!({})).await;
    let delivery = app.only_delivery(event).await;
    let is_its_own = |line: &Value| line["delivery_id"] == delivery;
    until("it has been tried", async || lines_about(&server, "push").iter().any(is_its_own)).await;
    app.until_delivery(delivery, "PENDING").await;
    app.post_empty(&format!("/deliveries/{delivery}/dead-letter?reason=n0t%20logged")).await.expect(200);
    let line = line_about(&server, "a push became a dead letter").await;
    assert_fields(&line, json!({"event_id": event, "delivery_id": delivery}));
    assert!(!server.stderr().contains("n0t logged"), "{}", server.stderr());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_one_line_when_it_starts_and_one_when_it_ends() {
    let (server, _) = start(&["--log-format", "json"]).await;
    let app = &server.app;
    app.publish_tagged("a").await;
    app.publish_tagged("a").await;
    let body = json!({"filter": {"tags": ["a"]}, "reason": "n0t logged"});
    let operation = app.post("/events/cancel", &body).await.expect(202).json();
    let line = line_about(&server, "an operation was started").await;
    assert_fields(&line, json!({"operation_id": operation["id"], "matched": 2, "done": 0}));
    let line = line_about(&server, "an operation has ended").await;
    assert_fields(&line, json!({"operation_id": operation["id"], "done": 2, "failed": 0}));
    assert!(!server.stderr().contains("n0t logged"), "{}", server.stderr());
    server.stop().await;
}
