//! Batching must not let one caller's error affect another caller, or leave a caller without a
//! response.
//!
//! Calls whose statements wait for a table that the test has locked keep the batchers busy. Calls
//! sent meanwhile queue up, and leave as one batch.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use waybill::engine::Queued;

use crate::support::locks::{BLOCKED_CALLS, HeldRow};
use crate::support::work::{Claim, Naming, W1, repeated};
use crate::support::{App, HeldTable, Options, Reply, database, ledger, until, within_patience};

/// The number of calls in a batch.
const MANY: usize = 30;

/// The number of batches that a batcher has at the database at once.
const WIDTH: usize = 2;

type Call = JoinHandle<Reply>;

fn post(app: &App, path: &str, body: Value) -> Call {
    let request = app.client.post(format!("{}{path}", app.base)).json(&body);
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

fn publish(app: &App, title: &str) -> Call {
    post(app, "/events", json!({"title": title, "tags": "a"}))
}

fn settle(app: &App, claim: &Claim, verb: &str, more: Value) -> Call {
    let mut body = claim.body(Naming::Lease);
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    post(app, &format!("/events/{}/{verb}", claim.event_id), body)
}

fn complete(app: &App, claim: &Claim) -> Call {
    settle(app, claim, "complete", json!({}))
}

async fn reply_to(call: Call) -> Reply {
    within_patience(call).await.expect("no panic")
}

async fn replies_to(calls: Vec<Call>) -> Vec<Reply> {
    join_all(calls.into_iter().map(reply_to)).await
}

async fn until_queued(app: &App, wanted: impl Fn(Queued) -> usize, calls: usize) {
    until("the calls are queued", async || wanted(app.engine().queued()) == calls).await;
}

/// Publishes events that one worker claims.
async fn held_claims(app: &App, count: usize) -> Vec<Claim> {
    let events: Vec<Value> = (0..count).map(|_| json!({"title": "a job", "tags": "a"})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    let claims: Vec<Claim> = app.claim_batch("a", W1, count).await.iter().map(Claim::of).collect();
    assert_eq!(claims.len(), count);
    claims
}

/// A batcher with as many batches at the database as it may have, each of one call, all of them
/// blocked.
struct BusyBatcher {
    held: HeldTable,
    ahead: Vec<Call>,
}

impl BusyBatcher {
    /// Publishes wait for the table of events.
    async fn of_publishing(app: &App) -> Self {
        let mut batcher = Self { held: HeldTable::lock(&app.url, "waybill.events").await, ahead: Vec::new() };
        for busy in 1..=WIDTH {
            batcher.ahead.push(publish(app, "ahead"));
            batcher.held.until_blocked_statements(busy).await;
        }
        batcher
    }

    /// Settlements wait for the table of the log.
    async fn of_settling(app: &App) -> Self {
        let claims = held_claims(app, WIDTH).await;
        let mut batcher = Self { held: HeldTable::lock(&app.url, "waybill.event_log").await, ahead: Vec::new() };
        for (ahead, claim) in claims.iter().enumerate() {
            batcher.ahead.push(complete(app, claim));
            batcher.held.until_blocked_statements(ahead + 1).await;
        }
        batcher
    }

    /// Unlocks the table, and asserts that the calls ahead succeed.
    async fn unlock(self) {
        self.held.unlock().await;
        for reply in replies_to(self.ahead).await {
            assert!(reply.status < 300, "{reply:?}");
        }
    }

    /// Unlocks the table after a cut. Returns how many of the calls ahead succeeded.
    async fn unlock_rest(self) -> usize {
        self.held.unlock().await;
        replies_to(self.ahead).await.iter().filter(|reply| reply.status < 300).count()
    }
}

/// Cancels one of the batches ahead. The batch that has queued behind them then runs and is
/// blocked, too, and its connection is terminated.
async fn terminate_next_batch(app: &App) {
    let now = app.count("SELECT extract(epoch FROM clock_timestamp()) * 1000000").await;
    let called_off = format!("SELECT pg_cancel_backend(min(pid))::int {BLOCKED_CALLS}");
    assert_eq!(app.count(&called_off).await, 1);
    let newcomer = format!("{BLOCKED_CALLS} AND extract(epoch FROM query_start) * 1000000 > {now}");
    until("the next batch is blocked", async || app.count(&format!("SELECT count(*) {newcomer}")).await == 1).await;
    assert_eq!(app.count(&format!("SELECT pg_terminate_backend(pid)::int {newcomer}")).await, 1);
}

/// Returns the only reply that does not have this status.
fn odd_one_out(replies: Vec<Reply>, status: u16) -> Reply {
    let (others, mut odd): (Vec<Reply>, Vec<Reply>) = replies.into_iter().partition(|reply| reply.status == status);
    assert_eq!((others.len(), odd.len()), (MANY - 1, 1), "{odd:?}");
    odd.remove(0)
}

/// Makes the database refuse rows and count the refusals in a sequence, which does not roll back.
async fn refuse(app: &App, table: &str, condition: &str) {
    let sql = format!(
        "CREATE SEQUENCE refusals; \
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM nextval('refusals'); RAISE check_violation USING MESSAGE = 'no culprits here'; END $$; \
         CREATE TRIGGER no_culprits BEFORE INSERT OR UPDATE ON waybill.{table} \
             FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()"
    );
    database::execute(&app.url, &sql).await;
}

/// Asserts that the refused call was in a batch, which was halved until the call was refused alone.
async fn assert_batch_was_halved(app: &App) {
    let refusals = app.count("SELECT last_value FROM refusals").await;
    assert!((5..=6).contains(&refusals), "thirty are halved five times or so, not {refusals}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_the_database_refuses_fails_only_its_own_publisher() {
    let app = App::start().await;
    refuse(&app, "events", "NEW.title = 'culprit'").await;
    let batcher = BusyBatcher::of_publishing(&app).await;
    let title = |n: usize| if n == 17 { "culprit".to_owned() } else { format!("job {n}") };
    let calls: Vec<Call> = (0..MANY).map(|n| publish(&app, &title(n))).collect();
    until_queued(&app, |queued| queued.publish, MANY).await;
    batcher.unlock().await;
    let culprit = odd_one_out(replies_to(calls).await, 201);
    assert!(!culprit.text.contains("no culprits here"), "{culprit:?}");
    culprit.problem(500, "internal_error");
    assert_batch_was_halved(&app).await;
    let jobs = "SELECT count(DISTINCT title) FROM waybill.events WHERE title LIKE 'job %'";
    assert_eq!(app.count(jobs).await, MANY as i64 - 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, (MANY - 1 + WIDTH) as i64);
    ledger::check(&app).await;
}

/// Settles thirty claims in one batch, one of which the database refuses. Asserts that the others
/// get a 200, and that only the refused claim is unchanged.
async fn one_settlement_is_refused(verb: &str, culprit: Value, condition: &str, status: &str) {
    let app = App::start().await;
    refuse(&app, "deliveries", condition).await;
    let claims = held_claims(&app, MANY).await;
    let batcher = BusyBatcher::of_settling(&app).await;
    let more = |n: usize| if n == 17 { culprit.clone() } else { json!({}) };
    let calls: Vec<Call> = claims.iter().enumerate().map(|(n, claim)| settle(&app, claim, verb, more(n))).collect();
    until_queued(&app, |queued| queued.settle, MANY).await;
    batcher.unlock().await;
    odd_one_out(replies_to(calls).await, 200).problem(500, "internal_error");
    assert_batch_was_halved(&app).await;
    for (n, claim) in claims.iter().enumerate() {
        assert_eq!(app.status(claim.event_id).await, if n == 17 { "PROCESSING" } else { status });
    }
    ledger::check(&app).await;
    settle(&app, &claims[17], verb, json!({})).await.expect("no panic").expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_the_database_refuses_fails_only_its_own_worker() {
    one_settlement_is_refused(
        "complete",
        json!({"result": "culprit"}),
        "NEW.result::text = '\"culprit\"'",
        "COMPLETED",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_the_database_refuses_fails_only_its_own_worker() {
    one_settlement_is_refused("fail", json!({"error_message": "culprit"}), "NEW.last_error = 'culprit'", "PENDING")
        .await;
}

/// Completions are written before settlements that take the slow path. When one of the latter is
/// refused, the completions stand and are answered as usual.
#[tokio::test(flavor = "multi_thread")]
async fn completions_batched_with_a_failure_that_the_database_refuses_are_written_once() {
    let app = App::start().await;
    refuse(&app, "deliveries", "NEW.last_error = 'culprit'").await;
    let claims = held_claims(&app, MANY).await;
    let batcher = BusyBatcher::of_settling(&app).await;
    let mut calls: Vec<Call> = claims[1..].iter().map(|claim| complete(&app, claim)).collect();
    calls.push(settle(&app, &claims[0], "fail", json!({"error_message": "culprit"})));
    until_queued(&app, |queued| queued.settle, MANY).await;
    batcher.unlock().await;
    odd_one_out(replies_to(calls).await, 200).problem(500, "internal_error");
    assert_eq!(app.count("SELECT last_value FROM refusals").await, 1, "completions are not tried again");
    for claim in &claims[1..] {
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", "COMPLETED"]);
    }
    assert_eq!(app.actions(claims[0].event_id).await, ["PICKED"]);
    ledger::check(&app).await;
}

/// Settles one claim several times in one batch, in this order. Returns the replies.
async fn settle_in_one_batch(app: &App, verbs: &[&str]) -> (Claim, Vec<Reply>) {
    let claim = held_claims(app, 1).await.remove(0);
    let batcher = BusyBatcher::of_settling(app).await;
    let mut calls = Vec::new();
    for (queued_before, verb) in verbs.iter().enumerate() {
        calls.push(settle(app, &claim, verb, json!({})));
        until_queued(app, |queued| queued.settle, queued_before + 1).await;
    }
    batcher.unlock().await;
    let replies = replies_to(calls).await;
    let transactions = "SELECT count(DISTINCT xmin::text) FROM waybill.event_log WHERE action <> 'PICKED'";
    assert_eq!(app.count(&format!("{transactions} AND event_id = {}", claim.event_id)).await, 1);
    ledger::check(app).await;
    (claim, replies)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_sent_thrice_in_one_batch_is_logged_once_and_gets_the_same_response() {
    let app = App::start().await;
    let (claim, replies) = settle_in_one_batch(&app, &["complete", "complete", "complete"]).await;
    let first = replies[0].json();
    for reply in &replies[1..] {
        assert_eq!((reply.status, reply.json()), (200, repeated(&first)));
    }
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "COMPLETED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_completion_and_a_failure_in_one_batch_the_first_counts() {
    let app = App::start().await;
    for (verbs, action) in [(["complete", "fail"], "COMPLETED"), (["fail", "complete"], "FAILED")] {
        let (claim, replies) = settle_in_one_batch(&app, &verbs).await;
        let [first, second] = <[Reply; 2]>::try_from(replies).expect("two replies");
        first.expect(200);
        second.problem(409, "already_settled");
        assert_eq!(app.actions(claim.event_id).await, ["PICKED", action]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_a_completion_and_a_heartbeat_in_one_batch_are_applied_in_order() {
    let app = App::start().await;
    let (claim, replies) = settle_in_one_batch(&app, &["start", "complete", "heartbeat"]).await;
    let [start, complete, heartbeat] = <[Reply; 3]>::try_from(replies).expect("three replies");
    assert_eq!(start.expect(200).json()["action"], "STARTED");
    assert_eq!(complete.expect(200).json()["action"], "COMPLETED");
    heartbeat.problem(409, "already_settled");
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "STARTED", "COMPLETED"]);
}

/// Asserts that every call got a 503 with a `Retry-After`.
fn assert_all_unavailable(replies: Vec<Reply>) {
    assert_eq!(replies.len(), MANY);
    for reply in replies {
        assert_eq!(reply.header("retry-after"), Some("1"));
        reply.problem(503, "database_unavailable");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_whose_batch_loses_its_connection_all_get_a_503_and_nothing_is_stored() {
    let app = App::start().await;
    let batcher = BusyBatcher::of_publishing(&app).await;
    let calls: Vec<Call> = (0..MANY).map(|n| publish(&app, &format!("job {n}"))).collect();
    until_queued(&app, |queued| queued.publish, MANY).await;
    terminate_next_batch(&app).await;
    assert_all_unavailable(replies_to(calls).await);
    let stored = batcher.unlock_rest().await;
    assert_eq!(stored, WIDTH - 1, "one of the batches ahead was cancelled");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, stored as i64);
    ledger::check(&app).await;
    app.publish_tagged("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_whose_batch_loses_its_connection_all_get_a_503_and_can_settle_again() {
    let app = App::start().await;
    let claims = held_claims(&app, MANY).await;
    let batcher = BusyBatcher::of_settling(&app).await;
    // Half of them take the fast path, half the slow one.
    let verb = |n: usize| if n.is_multiple_of(2) { "complete" } else { "fail" };
    let calls: Vec<Call> =
        claims.iter().enumerate().map(|(n, claim)| settle(&app, claim, verb(n), json!({}))).collect();
    until_queued(&app, |queued| queued.settle, MANY).await;
    terminate_next_batch(&app).await;
    assert_all_unavailable(replies_to(calls).await);
    batcher.unlock_rest().await;
    for claim in &claims {
        // Until the server notices the cut, the connection may be handed out once more.
        let path = format!("/events/{}", claim.event_id);
        until("the event can be read", async || app.get(&path).await.status == 200).await;
        assert_eq!(app.actions(claim.event_id).await, ["PICKED"]);
    }
    ledger::check(&app).await;
    for (n, claim) in claims.iter().enumerate() {
        app.settle(claim, verb(n), Naming::Lease).await.expect(200);
    }
    ledger::check(&app).await;
}

/// More publishers than their batcher takes, on two connections to the database, and a few workers.
#[tokio::test(flavor = "multi_thread")]
async fn publishers_at_full_speed_do_not_starve_workers() {
    const PUBLISHERS: usize = 200;
    const EVENTS_EACH: usize = 20;
    const WORKERS: usize = 8;
    let flags = ["--db-connections=2", "--max-queued=50"].map(str::to_owned).to_vec();
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let (refused, lives, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    // However fast the publishers are, their batcher is full while the table is locked.
    let held = HeldTable::lock(&app.url, "waybill.events").await;
    let unlocking = async {
        until("the batcher is full", async || refused.load(Ordering::Relaxed) > 0).await;
        held.unlock().await;
    };
    let publishing = join_all((0..PUBLISHERS).map(async |_| {
        let mut stored = Vec::new();
        while stored.len() < EVENTS_EACH {
            let reply = app.post("/events", &json!({"title": "a job", "tags": "a"})).await;
            match reply.status {
                429 => drop(refused.fetch_add(1, Ordering::Relaxed)),
                _ => stored.push(reply.expect(201).json()["id"].as_i64().expect("an id")),
            }
        }
        stored
    }));
    let working = join_all((0..WORKERS).map(async |worker| {
        while !is_over.load(Ordering::Relaxed) {
            let Some(event) = app.claim("a", &format!("worker:{worker}")).await else { continue };
            app.settle(&Claim::of(&event), "complete", Naming::Lease).await.expect(200);
            lives.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let publishing = async {
        let stored = publishing.await.concat();
        is_over.store(true, Ordering::Relaxed);
        (stored, lives.load(Ordering::Relaxed))
    };
    let ((stored, finished_meanwhile), _, ()) = tokio::join!(publishing, working, unlocking);
    assert_eq!(stored.iter().collect::<BTreeSet<_>>().len(), PUBLISHERS * EVENTS_EACH);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, stored.len() as i64);
    // An event takes two worker calls. With fair scheduling, workers finish half as many events as
    // publishers store; if publishers starve the workers, they finish none.
    let fair = WORKERS * EVENTS_EACH / 2;
    assert!(finished_meanwhile >= fair / 4, "{finished_meanwhile} events finished, where {fair} would be fair");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_that_lose_a_deadlock_are_retried() {
    let app = App::start().await;
    let claims = held_claims(&app, 2).await;
    let mut held = HeldRow::lock(&app, claims[1].event_id).await;
    // The transaction that waits longest for the deadlock to be noticed is the victim, which is
    // never the test's.
    held.execute("SET deadlock_timeout = '1h'").await;
    let results: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"event_id": claim.event_id, "lease_id": claim.lease_id, "action": "complete"}))
        .collect();
    let settling = post(&app, "/events/settle", json!({"worker_id": W1, "settlements": results}));
    app.until_blocked_calls(1).await;
    held.execute(&format!("SELECT 1 FROM waybill.deliveries WHERE id = {} FOR UPDATE", claims[0].event_id)).await;
    held.unlock().await;
    let outcomes = reply_to(settling).await.expect(200).json()["results"].clone();
    assert_eq!((&outcomes[0]["accepted"], &outcomes[1]["accepted"]), (&true.into(), &true.into()));
    // On a busy machine, the repetition may take the first row before the test gets it, and lose once more.
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert!(database::count(&app.url, deadlocks).await >= 1);
    ledger::check(&app).await;
}
