//! What a response means for a delivery: success, retry, or final failure.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::by_hand::{dispatch_and_finish, dispatcher, idle};
use super::{advance_and_dispatch, at_once, attempt, attempts, dead_letter, fixed, id_of, publish_id, until_status};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, ledger};

/// Publishes an event for one subscription at `url`. Returns the event's id.
async fn send_to(app: &App, url: &str, fields: Value) -> i64 {
    let event_type = format!("case.{}", url.rsplit('/').next().expect("a path"));
    let mut subscription = json!({"event_types": [event_type], "timeout_ms": 30_000});
    subscription.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    app.subscribe(url, subscription).await;
    publish_id(app, &event_type).await
}

/// Answers requests to `/<status>` with that status.
async fn by_path() -> Receiver {
    let receiver = Receiver::start().await;
    receiver.answer_with(|request| Reply::status(request.path[1..].parse().expect("a status")));
    receiver
}

#[tokio::test(flavor = "multi_thread")]
async fn every_2xx_status_is_a_success() {
    let (app, receiver) = (App::start().await, by_path().await);
    for status in [200, 201, 202, 204, 226] {
        let id = send_to(&app, &receiver.url(&format!("/{status}")), json!({})).await;
        let line = attempt(&app, id, 1).await;
        assert_eq!((&line["action"], &line["status_code"]), (&json!("COMPLETED"), &json!(status)));
        assert_eq!(line["error_kind"], Value::Null);
        until_status(&app, id, "COMPLETED").await;
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_error_statuses_are_retried() {
    let (app, receiver) = (fixed(&[]).await, by_path().await);
    for status in [408, 425, 429, 500, 501, 503, 599] {
        let id = send_to(&app, &receiver.url(&format!("/{status}")), json!({})).await;
        let line = attempt(&app, id, 1).await;
        assert_eq!((&line["action"], &line["status_code"]), (&json!("FAILED"), &json!(status)));
        assert_eq!(line["retry_in"], 5.0, "{line}");
        assert_eq!(line["error_message"], format!("the receiver answered {status}"));
        assert_eq!(app.status(id).await, "PENDING");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_error_statuses_are_final() {
    let (app, receiver) = (fixed(&[]).await, by_path().await);
    for status in [300, 304, 400, 401, 403, 404, 409, 422, 499] {
        let id = send_to(&app, &receiver.url(&format!("/{status}")), json!({})).await;
        until_status(&app, id, "FAILED").await;
        let letter = dead_letter(&app, id).await;
        assert_eq!(letter["reason"], "terminal", "{status}");
        assert_eq!(letter["detail"], format!("the receiver answered {status}"));
        assert_eq!(app.actions(id).await, ["PICKED", "FAILED", "DEAD_LETTERED"]);
    }
    assert_eq!(receiver.count(), 9);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_final_and_its_target_is_not_called() {
    let (app, receiver, elsewhere) = (fixed(&[]).await, Receiver::start().await, Receiver::start().await);
    for status in [301, 302, 307, 308] {
        receiver.next(Reply::status(status).header("location", &elsewhere.url("/stolen")));
        let id = send_to(&app, &receiver.url(&format!("/{status}")), json!({})).await;
        until_status(&app, id, "FAILED").await;
        assert_eq!(dead_letter(&app, id).await["reason"], "terminal");
    }
    assert_eq!((receiver.count(), elsewhere.connections()), (4, 0));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_on_decides_what_is_retried() {
    let (app, receiver) = (fixed(&[]).await, by_path().await);
    let retry_on = json!(["404", "500-501", "timeout"]);
    for (status, next) in [(404, "PENDING"), (501, "PENDING"), (502, "FAILED"), (429, "FAILED")] {
        let url = receiver.url(&format!("/{status}"));
        let id = send_to(&app, &url, json!({"retry_on": retry_on})).await;
        attempt(&app, id, 1).await;
        until_status(&app, id, next).await;
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let id = send_to(&app, &format!("http://{nobody}/refused"), json!({"retry_on": retry_on})).await;
    until_status(&app, id, "FAILED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn network_errors_are_told_apart_and_retried() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    let impatient = json!({"timeout_ms": 100});
    let cases = [
        ("slow_headers", "timeout", Reply::never(), impatient.clone()),
        ("slow_body", "timeout", Reply::ok().body("half").body_never_ends(), impatient),
        ("reset", "connection", Reply::reset(), json!({})),
        ("cut_short", "connection", Reply::ok().close_after_headers(), json!({})),
        ("garbage", "invalid_response", Reply::garbage(), json!({})),
    ];
    for (path, kind, reply, fields) in cases {
        receiver.next(reply);
        let id = send_to(&app, &receiver.url(&format!("/{path}")), fields).await;
        assert_retried(&app, id, kind).await;
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let id = send_to(&app, &format!("http://{nobody}/refused"), json!({})).await;
    assert_retried(&app, id, "connect").await;
    let stranger = Receiver::start_tls().await;
    let id = send_to(&app, &stranger.url("/tls"), json!({})).await;
    assert_retried(&app, id, "tls").await;
    ledger::check(&app).await;
}

async fn assert_retried(app: &App, id: i64, kind: &str) {
    let line = attempt(app, id, 1).await;
    assert_eq!((&line["error_kind"], &line["status_code"]), (&json!(kind), &Value::Null), "{line}");
    assert_eq!(line["retry_in"], 5.0, "{line}");
    let message = line["error_message"].as_str().expect("a message");
    assert!(message.starts_with(&format!("{kind}: ")), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_cannot_be_rendered_is_never_sent_and_never_retried() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    let transform = json!({"template": "{\"user\": {{ payload.user }}}"});
    let id = send_to(&app, &receiver.url("/odd"), json!({"transform": transform})).await;
    until_status(&app, id, "FAILED").await;
    assert_eq!(attempts(&app, id).await[0]["error_kind"], "body_not_renderable");
    assert_eq!(dead_letter(&app, id).await["reason"], "terminal");
    assert_eq!(receiver.connections(), 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_follow_the_schedule_until_the_push_is_exhausted() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let id = send_to(&app, &receiver.url("/hook"), json!({})).await;
    for (number, wait) in [(1, 5), (2, 30), (3, 300)] {
        let line = attempt(&app, id, number).await;
        assert_eq!((line["retry_in"].as_f64(), &line["attempt"]), (Some(f64::from(wait)), &json!(number)));
        assert_eq!(app.advance_and_promote(i64::from(wait) - 1).await, 0, "not a second early");
        advance_and_dispatch(&app, 1).await;
    }
    let last = attempt(&app, id, 4).await;
    assert_eq!(last["next_retry_at"], Value::Null);
    until_status(&app, id, "FAILED").await;
    let letter = dead_letter(&app, id).await;
    assert_eq!(letter["reason"], "exhausted");
    assert_eq!(letter["attempts"].as_array().expect("attempts").len(), 4);
    assert_eq!(receiver.count(), 4);
    let numbers: Vec<String> =
        receiver.so_far().iter().map(|r| r.header("waybill-attempt").expect("a header").to_owned()).collect();
    assert_eq!(numbers, ["1", "2", "3", "4"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_error_in_the_last_attempt_is_terminal_and_not_exhausted() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    receiver.next(Reply::status(500));
    receiver.next(Reply::status(400));
    let id = send_to(&app, &receiver.url("/hook"), json!({"max_attempts": 2, "backoff": at_once()})).await;
    until_status(&app, id, "FAILED").await;
    assert_eq!(dead_letter(&app, id).await["reason"], "terminal");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_expires_between_two_attempts_fails_as_expired() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    receiver.always(Reply::status(500));
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    let expires_at = app.now() + TimeDelta::seconds(4);
    let id = app.publish(json!({"event_type": "t", "expires_at": expires_at})).await;
    attempt(&app, id, 1).await;
    app.advance(3);
    assert_eq!(app.expire().await, 0);
    app.advance(1);
    assert_eq!(app.expire().await, 1);
    assert_eq!(app.actions(id).await, ["PICKED", "FAILED", "EXPIRED", "DEAD_LETTERED"]);
    assert_eq!(dead_letter(&app, id).await["reason"], "expired");
    advance_and_dispatch(&app, 600).await;
    assert_eq!((receiver.count(), app.status(id).await.as_str()), (1, "FAILED"));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_expires_while_its_subscription_is_disabled_is_not_sent_again() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    // The first attempt comes before the subscription is disabled, because a disabled subscription
    // gets no new events.
    receiver.next(Reply::status(500));
    let expires_at = Utc::now() + TimeDelta::seconds(2);
    let id = app.publish(json!({"event_type": "t", "expires_at": expires_at})).await;
    attempt(&app, id, 1).await;
    app.patch(&format!("/subscriptions/{}", id_of(&subscription)), &json!({"is_active": false})).await.expect(200);
    until_status(&app, id, "FAILED").await;
    assert_eq!(dead_letter(&app, id).await["reason"], "expired");
    assert_eq!(receiver.count(), 1);
    ledger::check(&app).await;
}

/// The event is not yet swept when the pause ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_expired_while_its_endpoint_was_paused_is_not_sent_and_delays_no_other() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1, "max_concurrency": 1})).await;
    receiver.next(Reply::too_many_requests("60"));
    publish_id(&app, "t").await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    let late = app.publish(json!({"event_type": "t", "expires_at": app.now() + TimeDelta::seconds(30)})).await;
    let other = publish_id(&app, "t").await;
    app.advance(60);
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await + dispatch_and_finish(&app, &mut dispatcher).await, 1);
    assert_eq!(dead_letter(&app, late).await["reason"], "expired");
    assert_eq!((app.status(other).await.as_str(), receiver.count()), ("COMPLETED", 2));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_beginning_of_a_response_is_kept() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    let long = "ü".repeat(100_000);
    for (path, reply, excerpt) in [
        ("short", Reply::status(500).body("no disk left"), json!("no disk left")),
        ("long", Reply::status(500).body(long.clone()), json!("ü".repeat(1024))),
        ("endless", Reply::status(500).body("ab").endless(), json!("ab".repeat(1024))),
        ("fine", Reply::ok().body("thank you"), json!("thank you")),
        ("nothing", Reply::ok(), Value::Null),
        ("binary", Reply::status(500).body(b"a\0b\xff".to_vec()), json!("ab\u{fffd}")),
    ] {
        receiver.next(reply);
        let id = send_to(&app, &receiver.url(&format!("/{path}")), json!({})).await;
        assert_eq!(attempt(&app, id, 1).await["response_excerpt"], excerpt, "{path}");
    }
    ledger::check(&app).await;
}
