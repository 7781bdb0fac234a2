//! The events of a request are stored, and then the state of a repeated one cannot be read.

use std::time::{Duration, Instant};

use diesel_async::SimpleAsyncConnection;
use serde_json::{Value, json};

use super::{events, job};
use crate::support::wire::{Cut, DatabaseProxy};
use crate::support::{App, HeldTable, Options, Reply, database, ledger, until};

/// The statement that reads the states of repeated events.
const FIND: &str = "-- find_repeated_events";

async fn app_behind_a_proxy() -> (App, DatabaseProxy) {
    let direct = database::migrated().await;
    let proxy = DatabaseProxy::to(&direct).await;
    let mut app = App::start_with(Options { url: Some(proxy.url()), fixed_clock: true, ..Options::default() }).await;
    app.url = direct;
    (app, proxy)
}

#[track_caller]
fn assert_outcome_unknown(reply: Reply, is_retryable: bool) {
    let problem = reply.problem(503, "outcome_unknown");
    assert_eq!((&problem["effect"], &problem["retryable"]), (&json!("unknown"), &json!(is_retryable)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_stored_does_not_say_that_it_had_no_effect() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(job("k")).await;
    proxy.cut_at(FIND, Cut::Before);
    let batch = json!({"events": [job("k"), job("new")]});
    assert_outcome_unknown(app.post("/events/batch", &batch).await, true);
    assert!(proxy.was_cut());
    assert_eq!(events(&app).await, 2);
    let receipts = app.post("/events/batch", &batch).await.expect(201).json();
    assert_eq!((&receipts["events"][0]["repeated"], &receipts["events"][1]["repeated"]), (&json!(true), &json!(true)));
    // An event without a key would be stored again.
    proxy.cut_at(FIND, Cut::Before);
    let batch = json!({"events": [job("k"), {"title": "plain", "tags": "a"}]});
    assert_outcome_unknown(app.post("/events/batch", &batch).await, false);
    assert_eq!(events(&app).await, 3);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_whose_event_cannot_be_read_may_be_sent_again() {
    let (app, proxy) = app_behind_a_proxy().await;
    let id = app.publish(job("k")).await;
    let webhook = json!({"idempotency_key": "k", "event_type": "t"});
    app.post("/webhooks", &webhook).await.expect(202);
    for (path, body, part) in [("/events", &job("k"), "\"published_by\""), ("/webhooks", &webhook, FIND)] {
        proxy.cut_at(part, Cut::Before);
        assert_outcome_unknown(app.post(path, body).await, true);
        assert!(proxy.was_cut(), "{path}");
        app.post(path, body).await.expect(200);
    }
    assert_eq!(app.post("/events", &job("k")).await.expect(200).json()["id"], id);
    assert_eq!(events(&app).await, 2);
}

/// Returns an event that is stored by a transaction, which looks its key up: a statement that expects a new key would
/// have to be tried again.
fn ordered_job(key: &str) -> Value {
    let mut job = job(key);
    job["ordering_key"] = "o".into();
    job
}

/// The publish has taken a part of the time of its caller. Then another request has the only connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_batch_that_waits_for_a_connection_is_answered_in_time() {
    let flags = vec!["--db-connections=1".to_owned()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    app.publish(ordered_job("k")).await;
    let mut reader = database::connection(&app.url).await;
    let mut held = HeldTable::lock(&app.url, "waybill.idempotency_keys").await;
    let sent_at = Instant::now();
    let batch = json!({"events": [ordered_job("k"), ordered_job("new")]});
    let gather = async {
        held.until_blocked().await;
        let lock = "BEGIN; LOCK TABLE waybill.dead_letters IN ACCESS EXCLUSIVE MODE";
        reader.batch_execute(lock).await.expect("it is locked");
        let release = async {
            until("a part of the time is over", async || sent_at.elapsed() > Duration::from_secs(2)).await;
            held.unlock().await;
        };
        tokio::join!(app.get("/dead-letters"), release)
    };
    let publish = async {
        let reply = app.post("/events/batch", &batch).await;
        (reply, sent_at.elapsed())
    };
    let ((reply, took), _) = tokio::join!(publish, gather);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_outcome_unknown(reply, true);
    reader.batch_execute("COMMIT").await.expect("the lock is released");
    assert_eq!(events(&app).await, 2);
}
