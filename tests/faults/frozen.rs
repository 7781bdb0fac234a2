//! The database stands still, or is held up, for longer than callers wait.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::Fragile;
use super::outage::processes_of;
use crate::support::locks::HeldRow;
use crate::support::work::Claim;
use crate::support::{App, HeldTable, Options, Reply, ledger, until, within_patience};

/// Calls of each kind.
const MANY: usize = 20;

type Call = JoinHandle<Reply>;

fn post(app: &App, path: &str, body: &Value) -> Call {
    let request = app.client.post(format!("{}{path}", app.base)).json(body);
    tokio::spawn(async move { Reply::of(request.send().await.expect("an answer")).await })
}

async fn answers(calls: Vec<Call>) -> Vec<Reply> {
    within_patience(join_all(calls)).await.into_iter().map(|reply| reply.expect("no panic")).collect()
}

/// What an answer says of the call's effect.
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

/// Events in the hands of `w:1`.
async fn held_claims(app: &App, count: usize) -> Vec<Claim> {
    let events: Vec<Value> = (0..count).map(|_| json!({"title": "held", "tags": "held"})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    app.claim_batch("held", "w:1", count).await.iter().map(Claim::of).collect()
}

/// Waits until nothing runs on the database any more that was sent to it.
async fn until_still(app: &App) {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'waybill' AND state <> 'idle' AND pid <> pg_backend_pid()";
    until("nothing runs any more", async || app.count(busy).await == 0).await;
}

/// Whatever was refused for sure did not happen; whatever was acknowledged did.
#[track_caller]
fn assert_true(what: &str, effect: Effect, happened: bool) {
    match effect {
        Effect::Done => assert!(happened, "{what} was acknowledged and is lost"),
        Effect::None => assert!(!happened, "{what} was refused and carried out"),
        Effect::Unknown => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_frozen_nothing_is_stored_that_was_refused_for_sure() {
    let fragile = Fragile::start().await;
    let app = &fragile.app;
    let (completed, cancelled) = (held_claims(app, MANY).await, held_claims(app, 3).await);
    // All that will be asked again is prepared.
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
        tokio::join!(answers(publishing), answers(completing), answers(cancelling), answers(claiming));
    processes.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).expect("it runs"));
    until("the server is ready again", async || app.get("/ready").await.status == 200).await;
    until_still(app).await;

    let effects = |replies: &[Reply]| replies.iter().map(effect_of).collect::<Vec<_>>();
    for (n, effect) in effects(&published).into_iter().enumerate() {
        let count = app.count(&format!("SELECT count(*) FROM waybill.events WHERE title = '{}'", title(n))).await;
        assert_true(&title(n), effect, count == 1);
    }
    for (claim, effect) in completed.iter().zip(effects(&settled)) {
        assert_true("a completion", effect, app.event(claim.event_id).await["status"] == "COMPLETED");
    }
    for (claim, effect) in cancelled.iter().zip(effects(&called_off)) {
        assert_true("a cancellation", effect, app.event(claim.event_id).await["cancel_requested"] == true);
    }
    let all = [published, settled, called_off, claimed].map(|replies| effects(&replies)).concat();
    assert!(all.contains(&Effect::Unknown), "some had been sent: {all:?}");
    assert!(all.contains(&Effect::None), "some had not: {all:?}");
    until("claims that nobody was told of are given back", async || {
        app.count("SELECT count(*) FROM waybill.deliveries WHERE worker_id LIKE 'c:%' AND status = 'PROCESSING'").await
            == 0
    })
    .await;
    ledger::check(app).await;
    app.publish_tagged("b").await;
}

/// Those ahead wait for a table that somebody holds. When one of them is called off, those behind
/// it go and wait for the table in their turn: not for as long as any statement may, but for the rest
/// of their time.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_have_waited_have_only_the_rest_of_their_time_at_the_database() {
    const HELD_UP: &str = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let app = App::start().await;
    let mut held = HeldTable::lock(&app.url, "waybill.events").await;
    let event = json!({"title": "a job", "tags": "a"});
    let mut calls = Vec::new();
    for busy in 1..=2 {
        calls.push(post(&app, "/events", &event));
        held.until_blocked_statements(busy).await;
    }
    let asked_at = Instant::now();
    calls.extend((0..MANY).map(|_| post(&app, "/events", &event)));
    until("some of the time is over", async || asked_at.elapsed() > Duration::from_millis(1_500)).await;
    assert_eq!(app.count(&format!("SELECT pg_cancel_backend(min(pid))::int {HELD_UP}")).await, 1);
    // The table is let go when everybody has been told.
    let replies = answers(calls).await;
    assert!(asked_at.elapsed() < Duration::from_secs(5), "{:?}", asked_at.elapsed());
    held.unlock().await;
    until_still(&app).await;
    for reply in &replies {
        assert_eq!(effect_of(reply), Effect::None, "the database answered in time: {reply:?}");
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    app.publish_tagged("a").await;
}

/// Each wait for a lock is shorter than a wait may be; together they are longer than the caller's.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_one_lock_after_another_ends_with_its_callers_time() {
    let app = App::start().await;
    let claims = held_claims(&app, 2).await;
    let [first, second] =
        [HeldRow::lock(&app, claims[0].event_id).await, HeldRow::lock(&app, claims[1].event_id).await];
    let fail = |claim: &Claim| json!({"event_id": claim.event_id, "lease_id": claim.lease_id, "action": "fail"});
    let results = json!({"worker_id": "w:1", "results": claims.iter().map(fail).collect::<Vec<_>>()});
    let asked_at = Instant::now();
    let call = post(&app, "/events/settle", &results);
    until("half of the time is over", async || asked_at.elapsed() > Duration::from_secs(2)).await;
    first.unlock().await;
    let reply = within_patience(call).await.expect("no panic");
    assert!(asked_at.elapsed() < Duration::from_secs(5), "{:?}", asked_at.elapsed());
    assert_eq!(effect_of(&reply), Effect::None, "{reply:?}");
    second.unlock().await;
    until_still(&app).await;
    for claim in &claims {
        assert_eq!(app.actions(claim.event_id).await, ["PICKED"]);
    }
}

/// More than the database can take in the time: each is stored, or refused and not stored.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_large_publishes_at_once_none_is_stored_that_was_refused() {
    const LARGE: usize = 60;
    let app = App::start_with(Options { flags: vec!["--db-connections=2".into()], ..Options::default() }).await;
    let payload = "x".repeat(1_000_000);
    let title = |n: usize| format!("large {n}");
    let calls: Vec<Call> = (0..LARGE)
        .map(|n| post(&app, "/events", &json!({"title": title(n), "tags": "a", "payload": payload})))
        .collect();
    let replies = answers(calls).await;
    until_still(&app).await;
    for (n, reply) in replies.iter().enumerate() {
        let count = app.count(&format!("SELECT count(*) FROM waybill.events WHERE title = '{}'", title(n))).await;
        assert_true(&title(n), effect_of(reply), count == 1);
    }
}
