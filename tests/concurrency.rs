//! Many calls at once: nothing is handed out twice, nothing is lost, and the state agrees with the
//! log.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill::domain::ids::NamespaceId;
use waybill::domain::tags::Tags;
use waybill::engine::claim::ClaimRequest;
use waybill::store::tables::ready::QueueKey;

use crate::support::locks::HeldRow;
use crate::support::work::{Claim, Naming, W1, W2, entry_of, repeated};
use crate::support::{App, Options, Rng, database, ledger};

const WORKERS: u64 = 16;
const EVENTS: usize = 2_000;

/// Overlapping tags: every worker polls two of them, every event has two.
const TAGS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn two_tags(number: u64) -> String {
    let at = |n: u64| TAGS[(n % TAGS.len() as u64) as usize];
    format!("{},{}", at(number), at(number + 1 + number / 5 % 4))
}

/// Publishes events in batches, each made by `event` from its number.
async fn publish_many(app: &App, count: usize, event: impl Fn(u64) -> Value) {
    let numbers: Vec<u64> = (0..count as u64).collect();
    for chunk in numbers.chunks(500) {
        let events: Vec<Value> = chunk.iter().map(|number| event(*number)).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_workers_on_two_thousand_events_get_each_exactly_once() {
    let app = App::start().await;
    publish_many(&app, EVENTS, |n| json!({"title": "a job", "tags": two_tags(n), "priority": n % 3})).await;
    let working = (0..WORKERS).map(|worker| {
        let app = &app;
        async move {
            let (worker_id, tags) = (format!("worker:{worker}"), two_tags(worker));
            let mut handed_out = Vec::new();
            loop {
                // Half of them claim one event at a time, the others a few.
                let events = app.claim_batch(&tags, &worker_id, if worker % 2 == 0 { 1 } else { 7 }).await;
                if events.is_empty() {
                    return handed_out;
                }
                for claim in events.iter().map(Claim::of) {
                    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
                    handed_out.push(claim.event_id);
                }
            }
        }
    });
    let handed_out: Vec<i64> = join_all(working).await.concat();
    assert_eq!(handed_out.len(), EVENTS);
    assert_eq!(handed_out.iter().collect::<HashSet<_>>().len(), EVENTS);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log WHERE action = 'PICKED'").await, EVENTS as i64);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log WHERE action = 'COMPLETED'").await, EVENTS as i64);
    assert_eq!(app.count("SELECT count(*) FROM waybill.ready").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status <> 'COMPLETED'").await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_claim_gets_an_event_if_there_are_enough_however_many_claim_at_once() {
    const ROUNDS: usize = 20;
    let app = App::start().await;
    for _ in 0..ROUNDS {
        publish_many(&app, WORKERS as usize, |_| json!({"title": "a job", "tags": "a"})).await;
        let claiming = (0..WORKERS).map(|worker| {
            let app = &app;
            async move { app.claim("a", &format!("worker:{worker}")).await }
        });
        let claimed = join_all(claiming).await;
        assert!(claimed.iter().all(Option::is_some), "there was one for each worker");
    }
    ledger::check(&app).await;
}

/// A worker that makes all calls of a worker, and sometimes makes them twice, late or not at all.
async fn work_erratically(app: &App, worker: u64, stop: &AtomicBool, claims: &AtomicU64) {
    let (worker_id, tags) = (format!("worker:{worker}"), two_tags(worker));
    let mut rng = Rng::new(worker);
    let mut held: Vec<Claim> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let events = app.claim_batch(&tags, &worker_id, 1 + rng.below(4) as usize).await;
        claims.fetch_add(events.len() as u64, Ordering::Relaxed);
        held.extend(events.iter().map(Claim::of));
        let Some(claim) = held.pop() else { continue };
        match rng.below(10) {
            0 => expect_one_of(app.settle(&claim, "release", Naming::Lease).await.status, &[200, 409]),
            1 => expect_one_of(app.settle(&claim, "start", Naming::Lease).await.status, &[200, 409]),
            2 => expect_one_of(app.settle(&claim, "heartbeat", Naming::Lease).await.status, &[200, 409]),
            3 | 4 => {
                let after = json!({"retry_after_seconds": rng.below(2)});
                expect_one_of(app.settle_with(&claim, "fail", after).await.status, &[200, 400, 409]);
            }
            // Held until the lease is lost, and settled much later.
            5 => held.insert(0, claim),
            // Sent twice at once: both must get the same entry, and one of them is the repeat.
            6 => {
                let (one, two) = tokio::join!(
                    app.settle(&claim, "complete", Naming::Lease),
                    app.settle(&claim, "complete", Naming::Lease)
                );
                if one.status == 200 {
                    let [one, two] = [one.json(), two.expect(200).json()];
                    assert_eq!(entry_of(&one), entry_of(&two));
                    assert_ne!(one["repeated"], two["repeated"]);
                }
            }
            _ => expect_one_of(app.settle(&claim, "complete", Naming::Lease).await.status, &[200, 409]),
        }
    }
}

#[track_caller]
fn expect_one_of(status: u16, allowed: &[u16]) {
    assert!(allowed.contains(&status), "{status} is none of {allowed:?}");
}

/// Operators and sweeps that take work away from workers.
async fn interfere(app: &App, ids: i64, rounds: u64) {
    let mut rng = Rng::new(0x1234_5678);
    for _ in 0..rounds {
        let id = 1 + rng.below(ids as u64) as i64;
        match rng.below(8) {
            0 | 1 => expect_one_of(app.operate(id, "reset").await.status, &[200, 409]),
            2 => expect_one_of(app.operate(id, "retry").await.status, &[200, 409]),
            3 => expect_one_of(app.operate(id, "cancel").await.status, &[200, 409]),
            4 => drop(app.operate_on_all("/events/reset", json!({"stale_for_seconds": 1})).await),
            5 => drop(app.operate_on_all("/events/retry", json!({})).await),
            6 => {
                app.advance(1);
                app.reap().await;
            }
            _ => {
                app.advance(1);
                app.promote().await;
                app.expire().await;
            }
        }
    }
}

/// Runs workers and operators on the published events, then lets everything be finished without
/// interference, and checks consistency.
async fn run_with_interference(app: &App, rounds: u64) {
    let ids = app.count("SELECT max(id) FROM waybill.events").await;
    let (stop, claims) = (AtomicBool::new(false), AtomicU64::new(0));
    let working = join_all((0..WORKERS).map(|worker| work_erratically(app, worker, &stop, &claims)));
    let interfering = async {
        join_all((0..3).map(|_| interfere(app, ids, rounds))).await;
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(working, interfering);
    ledger::check(app).await;
    let picked = app.count("SELECT count(*) FROM waybill.event_log WHERE action = 'PICKED'").await;
    assert_eq!(picked as u64, claims.load(Ordering::Relaxed), "every claim is logged, and nothing else");
    app.operate_on_all("/events/reset", json!({"stale_for_seconds": 0})).await;
    finish_all(app).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.ready").await, 0);
    let open = "SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')";
    assert_eq!(app.count(open).await, 0);
    ledger::check(app).await;
}

/// Completes all there is, until nothing comes back.
async fn finish_all(app: &App) {
    loop {
        app.advance(3_600);
        app.promote().await;
        let events = app.claim_batch(&TAGS.join(","), W1, 1000).await;
        if events.is_empty() {
            return;
        }
        let results: Vec<Value> =
            events.iter().map(|event| json!({"event_id": event["id"], "action": "complete"})).collect();
        app.post("/events/settle", &json!({"worker_id": W1, "settlements": results})).await.expect(200);
    }
}

async fn chaotic_app() -> App {
    let flags = vec!["--poison-after".into(), "3".into()];
    App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn log_and_state_agree_while_operators_and_sweeps_interfere() {
    let app = chaotic_app().await;
    publish_many(&app, 400, |n| json!({"title": "a job", "tags": two_tags(n), "priority": n % 3, "max_retries": 4}))
        .await;
    run_with_interference(&app, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_state_and_order_agree_while_operators_and_sweeps_interfere_with_keys() {
    let app = chaotic_app().await;
    let soon = app.now() + chrono::TimeDelta::seconds(40);
    publish_many(&app, 400, |n| {
        let mut event = json!({"title": "a job", "tags": two_tags(n), "ordering_key": format!("k{}", n % 23)});
        if n % 11 == 0 {
            event["expires_at"] = json!(soon);
        }
        if n % 13 == 0 {
            event["delay_seconds"] = json!(n % 20);
        }
        event
    })
    .await;
    run_with_interference(&app, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_concurrent_with_a_reset_is_never_lost() {
    const MEETINGS: usize = 100;
    let app = App::start().await;
    publish_many(&app, MEETINGS, |_| json!({"title": "a job", "tags": "a"})).await;
    let claims: Vec<Claim> = app.claim_batch("a", W1, MEETINGS).await.iter().map(Claim::of).collect();
    for meeting in claims.chunks(10) {
        let meet = meeting.iter().map(|claim| async {
            let (completed, reset) =
                tokio::join!(app.settle(claim, "complete", Naming::Lease), app.operate(claim.event_id, "reset"));
            completed.expect(200);
            expect_one_of(reset.status, &[200, 409]);
        });
        join_all(meet).await;
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status <> 'COMPLETED'").await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_workers_that_settle_at_once_the_later_claim_wins() {
    const MEETINGS: usize = 50;
    let app = App::start().await;
    publish_many(&app, MEETINGS, |_| json!({"title": "a job", "tags": "a"})).await;
    for _ in 0..MEETINGS {
        let first = app.claim_one("a", W1).await;
        app.operate(first.event_id, "reset").await.expect(200);
        let (late, second) = tokio::join!(app.settle(&first, "complete", Naming::Lease), app.claim("a", W2));
        let taken_again = second.as_ref().filter(|event| event["id"] == first.event_id);
        match taken_again {
            Some(event) => {
                late.problem(409, "lease_lost");
                app.settle(&Claim::of(event), "complete", Naming::Lease).await.expect(200);
            }
            None => drop(late.expect(200)),
        }
        if let Some(event) = second.filter(|event| event["id"] != first.event_id) {
            app.settle(&Claim::of(&event), "release", Naming::Lease).await.expect(200);
        }
    }
    ledger::check(&app).await;
}

/// The engine's form of a `POST /events/claim` with an `idempotency_key`.
fn repeatable_request() -> ClaimRequest {
    ClaimRequest {
        tags: Tags::from_comma_separated("a").expect("a tag"),
        worker_id: W1.into(),
        max: 1,
        wait: Duration::ZERO,
        lease_seconds: 300.0,
        idempotency_key: Some("r1".into()),
        tag_patterns: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_does_not_undo_a_claim_that_a_repeated_request_returned() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let lost = app.engine().claim_deliveries(NamespaceId::DEFAULT, repeatable_request()).await.expect("a claim");
    let mut later = app.engine().claim_deliveries(NamespaceId::DEFAULT, repeatable_request()).await.expect("a claim");
    assert_eq!((lost.events().len(), later.events().len()), (1, 1));
    later.delivered();

    // The undoing of the lost claim is blocked, and another lock request queues behind it: when
    // that one is granted, the undoing has finished.
    let mut conn = database::connection(&app.url).await;
    conn.batch_execute("BEGIN; SELECT 1 FROM waybill.claim_requests FOR UPDATE").await.expect("the row is locked");
    drop(lost);
    app.until_blocked_calls(1).await;
    let behind = app.engine().claim_deliveries(NamespaceId::DEFAULT, repeatable_request());
    let release = async {
        app.until_blocked_calls(2).await;
        conn.batch_execute("COMMIT").await.expect("a commit");
    };
    let (behind, ()) = tokio::join!(behind, release);
    assert_eq!(behind.expect("a claim").events().len(), 1);
    assert_eq!(app.actions(id).await, ["PICKED"]);
    app.complete(id, W1).await.expect(200);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_response_is_lost_and_not_requested_again_is_undone() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    drop(app.engine().claim_deliveries(NamespaceId::DEFAULT, repeatable_request()).await.expect("a claim"));
    let event = app.get(&format!("/events/subscribe?tags=a&worker_id={W2}&wait_seconds=60")).await.expect(200).json();
    assert_eq!(event["id"], id);
    assert_eq!(app.actions(id).await, ["PICKED", "RELEASED", "PICKED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_succeed_while_a_new_log_partition_is_created() {
    let app = App::with_fixed_clock().await;
    app.advance(30 * 24 * 60 * 60);
    for _ in 0..2 {
        app.publish_tagged("a").await;
    }
    let held = app.claim_one("a", W1).await;
    let calls = async { tokio::join!(app.claim("a", W2), app.settle(&held, "complete", Naming::Lease)) };
    let (claimed, completed) = while_today_is_prepared(&app, 2, calls).await;
    assert!(claimed.is_some());
    completed.expect(200);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_succeed_while_a_new_log_partition_is_created() {
    let app = App::with_fixed_clock().await;
    app.advance(30 * 24 * 60 * 60);
    app.publish_tagged("a").await;
    let held = app.claim_one("a", W1).await;
    let entry = app.settle(&held, "complete", Naming::Lease).await.expect(200).json();
    let again = while_today_is_prepared(&app, 1, app.settle(&held, "complete", Naming::Lease)).await;
    assert_eq!(again.expect(200).json(), repeated(&entry));
    ledger::check(&app).await;
}

/// Prepares the log for today, and commits once `statements` statements of the calls wait for it.
async fn while_today_is_prepared<T>(app: &App, statements: i64, calls: impl Future<Output = T>) -> T {
    let mut conn = database::connection(&app.url).await;
    let prepare = format!("BEGIN; SELECT waybill.create_event_log_partition('{}')", app.now().date_naive());
    conn.batch_execute(&prepare).await.expect("the day is prepared");
    let commit = async {
        app.until_blocked_calls(statements).await;
        conn.batch_execute("COMMIT").await.expect("a commit");
    };
    let (answers, ()) = tokio::join!(calls, commit);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log_default").await, 0);
    answers
}

/// The two tags are claimed by another statement than one tag is.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_a_claim_skipped_because_it_was_locked_is_not_hidden_from_the_next_claim() {
    for tags in ["a", "a,b"] {
        let app = App::start().await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(app.publish_tagged("a").await);
        }
        let locked = HeldRow::lock(&app, ids[0]).await;
        let taken = app.claim_batch(tags, W1, 2).await;
        locked.unlock().await;
        assert_eq!(taken.iter().map(|event| event["id"].as_i64()).collect::<Vec<_>>(), [Some(ids[1]), Some(ids[2])]);
        // Not only found by a later scan from the beginning: the next claim begins at this position.
        let begin = app.engine().low_water_marks().of(&[QueueKey::of_tag(NamespaceId::DEFAULT, "a")])[0];
        let entry = app.count(&format!("SELECT ready_seq FROM waybill.deliveries WHERE id = {}", ids[0])).await;
        assert!(begin.seq <= entry, "{tags}: the next claim begins at {begin:?}, behind {entry}");
        assert_eq!(app.claim(tags, W2).await.expect("the first event")["id"], ids[0], "{tags}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_locks_no_event_that_it_does_not_hand_out() {
    for tags in ["a", "a,b"] {
        let app = App::start().await;
        for _ in 0..4 {
            app.publish_tagged("a").await;
        }
        assert_eq!(app.claim_batch(tags, W1, 2).await.len(), 2);
        // A lock leaves its transaction in the row.
        let locked = "SELECT count(*) FROM waybill.deliveries WHERE status = 'PENDING' AND xmax <> 0";
        assert_eq!(app.count(locked).await, 0, "{tags}");
    }
}
