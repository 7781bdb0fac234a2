//! `Retry-After`: a receiver says when it wants the next request.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::by_hand::{dispatch_and_finish, dispatcher, idle};
use super::{advance_and_dispatch, attempt, claims, endpoint, fixed, publish_id, until_status};
use crate::support::receiver::{Receiver, Reply};
use crate::support::work::time;
use crate::support::{App, ledger};

/// Answers one event with `reply`. Returns how long the delivery and its endpoint have to wait.
async fn waits(app: &App, receiver: &Receiver, path: &str, reply: Reply) -> (f64, f64) {
    receiver.next(reply);
    let subscription = app.subscribe(&receiver.url(path), json!({"event_types": [path]})).await;
    let id = publish_id(app, path).await;
    let retry_in = attempt(app, id, 1).await["retry_in"].as_f64().expect("a retry");
    let paused_until = &endpoint(app, &subscription).await["paused_until"];
    let paused_for = if paused_until.is_null() { 0.0 } else { (time(paused_until) - app.now()).as_seconds_f64() };
    // The database counts in microseconds, and the test's clock does not.
    (retry_in, (paused_for * 1000.0).round() / 1000.0)
}

fn http_date(time: DateTime<Utc>) -> String {
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The delivery itself waits only for its backoff, and then for the end of the pause. Thus it is
/// sent at once when the pause is lifted.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_pauses_the_endpoint_with_a_cap_for_429_and_503() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    for status in [429, 503] {
        let after = |value: &str| Reply::status(status).header("retry-after", value);
        for (value, waited) in [("120", (5.0, 120.0)), ("2", (5.0, 2.0)), ("999999999", (5.0, 86_400.0))] {
            let path = format!("/{status}-{value}");
            assert_eq!(waits(&app, &receiver, &path, after(value)).await, waited, "{path}");
        }
        let date = http_date(app.now() + TimeDelta::seconds(120));
        let (retry_in, paused_for) = waits(&app, &receiver, &format!("/{status}-date"), after(&date)).await;
        // HTTP dates have no fractions of a second.
        assert!(retry_in == 5.0 && paused_for > 118.9 && paused_for <= 120.0, "{retry_in} {paused_for}");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_ignored_for_other_statuses_and_invalid_values() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    for (path, status, value) in
        [("/500", 500, "600"), ("/408", 408, "600"), ("/soon", 503, "soon"), ("/neg", 429, "-5")]
    {
        let reply = Reply::status(status).header("retry-after", value);
        assert_eq!(waits(&app, &receiver, path, reply).await, (5.0, 0.0), "{path}");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_covers_the_whole_endpoint_and_no_other() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    let one = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["one"]})).await;
    let two = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["two"]})).await;
    app.subscribe(&receiver.url("/other"), json!({"event_types": ["three"]})).await;
    receiver.next(Reply::too_many_requests("120"));
    let first = publish_id(&app, "one").await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    for subscription in [&one, &two] {
        let paused = endpoint(&app, subscription).await;
        assert_eq!(app.seconds_ahead(&paused["paused_until"]), 120);
        assert_eq!(paused["breaker"], "closed", "the endpoint asked for the pause");
    }

    let waiting = [publish_id(&app, "one").await, publish_id(&app, "two").await];
    publish_id(&app, "three").await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1, "only the other endpoint");
    assert_eq!(receiver.so_far()[1].path, "/other");
    app.advance_and_promote(119).await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 0);
    assert_eq!(claims(&app, waiting[0]).await + claims(&app, waiting[1]).await, 0, "no attempt is counted");

    app.advance_and_promote(1).await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 3);
    for id in [first, waiting[0], waiting[1]] {
        assert_eq!(app.status(id).await, "COMPLETED");
    }
    assert_eq!(endpoint(&app, &two).await, json!({"breaker": "closed", "failures_in_row": 0, "paused_until": null}));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_pause_does_not_end_a_longer_one() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    receiver.next(Reply::too_many_requests("600"));
    receiver.next(Reply::too_many_requests("10"));
    publish_id(&app, "a").await;
    publish_id(&app, "b").await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 2);
    assert_eq!(app.seconds_ahead(&endpoint(&app, &subscription).await["paused_until"]), 600);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_sends_again_when_a_pause_ends() {
    let (app, receiver) = (fixed(&[]).await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    receiver.next(Reply::too_many_requests("30"));
    let id = publish_id(&app, "a").await;
    attempt(&app, id, 1).await;
    advance_and_dispatch(&app, 30).await;
    until_status(&app, id, "COMPLETED").await;
    assert_eq!(receiver.count(), 2);
    assert_eq!(endpoint(&app, &subscription).await["paused_until"], json!(null));
    ledger::check(&app).await;
}
