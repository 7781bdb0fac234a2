//! The database is frozen or blocked for longer than callers wait.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::Fragile;
use super::outage::processes_of;
use crate::support::locks::BLOCKED_CALLS;
use crate::support::locks::HeldRow;
use crate::support::work::Claim;
use crate::support::{App, HeldTable, Options, Reply, ledger, until, within_patience};

/// The number of calls of each kind.
const MANY: usize = 20;

type Call = JoinHandle<Reply>;

fn post(app: &App, path: &str, body: &Value) -> Call {
    let request = app.client.post(format!("{}{path}", app.base)).json(body);
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

async fn replies_to(calls: Vec<Call>) -> Vec<Reply> {
    within_patience(join_all(calls)).await.into_iter().map(|reply| reply.expect("no panic")).collect()
}

/// What a response says about the call's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Done,
    Unknown,
    None,
}

#[track_caller]
fn effect_of(reply: &Reply) -> Effect {
    if reply.status < 300 {
        return Effect::Done;
    }
    assert_eq!(reply.header("retry-after"), Some("1"), "{reply:?}");
    match (reply.status, reply.json()["code"].as_str().expect("a code")) {
        (503, "outcome_unknown") => Effect::Unknown,
        (503, "database_unavailable") | (429, "overloaded") => Effect::None,
        other => panic!("{other:?}: {reply:?}"),
    }
}

/// Publishes events that `w:1` claims.
async fn held_claims(app: &App, count: usize) -> Vec<Claim> {
    let events: Vec<Value> = (0..count).map(|_| json!({"title": "held", "tags": "held"})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    app.claim_batch("held", "w:1", count).await.iter().map(Claim::of).collect()
}

/// Waits until no statement runs on the database.
async fn until_no_statement_runs(app: &App) {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'waybill' AND state <> 'idle' AND pid <> pg_backend_pid()";
    until("no statement runs", async || app.count(busy).await == 0).await;
}

/// Asserts that a refused call had no effect and that an acknowledged one had.
#[track_caller]
fn assert_effect(what: &str, effect: Effect, happened: bool) {
    match effect {
        Effect::Done => assert!(happened, "{what} was acknowledged and is lost"),
        Effect::None => assert!(!happened, "{what} was refused and carried out"),
        Effect::Unknown => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_frozen_no_refused_call_takes_effect() {
    let fragile = Fragile::start().await;
    let app = &fragile.app;
    let (completed, cancelled) = (held_claims(app, MANY).await, held_claims(app, 3).await);
    // Prepares all statements that are used again below.
    app.publish(json!({"title": "before", "tags": "a"})).await;
    let processes = processes_of(fragile.cluster_dir.postmaster().expect("it runs"));
    processes.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).expect("it runs"));
    let title = |n: usize| format!("job {n}");
    let publishing =
        (0..MANY).map(|n| post(app, "/events", &json!({"title": title(n), "tags": "a"}))).collect::<Vec<_>>();
    let completing = completed
        .iter()
        .map(|claim| post(app, &format!("/events/{}/complete", claim.event_id), &json!({"worker_id": "w:1"})));
    let completing: Vec<Call> = completing.collect();
    let cancelling: Vec<Call> =
        cancelled.iter().map(|claim| post(app, &format!("/events/{}/cancel", claim.event_id), &json!({}))).collect();
    let claiming: Vec<Call> =
        (0..MANY).map(|n| post(app, "/events/claim", &json!({"tags": ["a"], "worker_id": format!("c:{n}")}))).collect();
    let (published, settled, called_off, claimed) =
        tokio::join!(replies_to(publishing), replies_to(completing), replies_to(cancelling), replies_to(claiming));
    processes.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).expect("it runs"));
    until("the server is ready again", async || app.get("/ready").await.status == 200).await;
    until_no_statement_runs(app).await;

    let effects = |replies: &[Reply]| replies.iter().map(effect_of).collect::<Vec<_>>();
    for (n, effect) in effects(&published).into_iter().enumerate() {
        let count = app.count(&format!("SELECT count(*) FROM waybill.events WHERE title = '{}'", title(n))).await;
        assert_effect(&title(n), effect, count == 1);
    }
    for (claim, effect) in completed.iter().zip(effects(&settled)) {
        assert_effect("a completion", effect, app.event(claim.event_id).await["status"] == "COMPLETED");
    }
    for (claim, effect) in cancelled.iter().zip(effects(&called_off)) {
        assert_effect("a cancellation", effect, app.event(claim.event_id).await["cancel_requested"] == true);
    }
    let all = [published, settled, called_off, claimed].map(|replies| effects(&replies)).concat();
    assert!(all.contains(&Effect::Unknown), "some had been sent: {all:?}");
    assert!(all.contains(&Effect::None), "some had not: {all:?}");
    until("claims without a response are undone", async || {
        app.count("SELECT count(*) FROM waybill.deliveries WHERE worker_id LIKE 'c:%' AND status = 'PROCESSING'").await
            == 0
    })
    .await;
    ledger::check(app).await;
    app.publish_tagged("b").await;
}

/// Calls wait for a table that the test has locked. When one of them is cancelled, the calls behind
/// it reach the database and wait for the table, too, but only for the rest of their time and not
/// for the full limit of a statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_in_a_queue_has_only_its_remaining_time_at_the_database() {
    let app = App::start().await;
    let mut held = HeldTable::lock(&app.url, "waybill.events").await;
    let event = json!({"title": "a job", "tags": "a"});
    let mut calls = Vec::new();
    for busy in 1..=2 {
        calls.push(post(&app, "/events", &event));
        held.until_blocked_statements(busy).await;
    }
    let sent_at = Instant::now();
    calls.extend((0..MANY).map(|_| post(&app, "/events", &event)));
    until("some of the time is over", async || sent_at.elapsed() > Duration::from_millis(1_500)).await;
    assert_eq!(app.count(&format!("SELECT pg_cancel_backend(min(pid))::int {BLOCKED_CALLS}")).await, 1);
    // The table is unlocked after all calls have been answered.
    let replies = replies_to(calls).await;
    assert!(sent_at.elapsed() < Duration::from_secs(5), "{:?}", sent_at.elapsed());
    held.unlock().await;
    until_no_statement_runs(&app).await;
    for reply in &replies {
        assert_eq!(effect_of(reply), Effect::None, "the database answered in time: {reply:?}");
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    app.publish_tagged("a").await;
}

/// Each wait for a lock is shorter than the limit; together they exceed the caller's time.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_several_locks_is_cancelled_when_its_callers_time_is_over() {
    let app = App::start().await;
    let claims = held_claims(&app, 2).await;
    let [first, second] =
        [HeldRow::lock(&app, claims[0].event_id).await, HeldRow::lock(&app, claims[1].event_id).await];
    let fail = |claim: &Claim| json!({"event_id": claim.event_id, "lease_id": claim.lease_id, "action": "fail"});
    let results = json!({"worker_id": "w:1", "settlements": claims.iter().map(fail).collect::<Vec<_>>()});
    let sent_at = Instant::now();
    let call = post(&app, "/events/settle", &results);
    until("half of the time is over", async || sent_at.elapsed() > Duration::from_secs(2)).await;
    first.unlock().await;
    let reply = within_patience(call).await.expect("no panic");
    assert!(sent_at.elapsed() < Duration::from_secs(5), "{:?}", sent_at.elapsed());
    assert_eq!(effect_of(&reply), Effect::None, "{reply:?}");
    second.unlock().await;
    until_no_statement_runs(&app).await;
    for claim in &claims {
        assert_eq!(app.actions(claim.event_id).await, ["PICKED"]);
    }
}

/// More than the database can store in time: each event is stored, or refused and not stored.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_large_publishes_at_once_no_refused_one_is_stored() {
    const LARGE: usize = 60;
    let app = App::start_with(Options { flags: vec!["--db-connections=2".into()], ..Options::default() }).await;
    let payload = "x".repeat(1_000_000);
    let title = |n: usize| format!("large {n}");
    let calls: Vec<Call> = (0..LARGE)
        .map(|n| post(&app, "/events", &json!({"title": title(n), "tags": "a", "payload": payload})))
        .collect();
    let replies = replies_to(calls).await;
    until_no_statement_runs(&app).await;
    for (n, reply) in replies.iter().enumerate() {
        let count = app.count(&format!("SELECT count(*) FROM waybill.events WHERE title = '{}'", title(n))).await;
        assert_effect(&title(n), effect_of(reply), count == 1);
    }
}
