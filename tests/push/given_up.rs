//! Many pushes of one event fail together: in small transactions that do not delay others.

use std::time::Duration;

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use waybill::domain::delivery::Report;
use waybill::domain::ids::{NamespaceId, SubscriptionId};
use waybill::engine::Engine;
use waybill::engine::push::{ClaimedPush, PushClaim, PushOutcome};

use super::by_hand::{dispatch, dispatcher, idle};
use super::rows;
use crate::support::locks::HeldRow;
use crate::support::receiver::{Receiver, Reply};
use crate::support::work::W1;
use crate::support::{App, ledger, until};

const NOWHERE: &str = "http://127.0.0.1:9/hook";

/// More pushes than one transaction fails.
const PUSHES: usize = 250;

/// The maximum number of dead letters that one transaction writes.
const MAX_DEAD_LETTERS: i64 = 100;

/// Returns the most dead letters, and the most bytes of payloads, that one transaction has written.
async fn largest_transaction(app: &App) -> (i64, i64) {
    let sql = "SELECT max(letters) AS letters, max(bytes) AS bytes FROM (SELECT count(*) AS letters, \
               coalesce(sum(octet_length(event ->> 'payload')), 0) AS bytes FROM waybill.dead_letters GROUP BY xmin::text) t";
    let most = rows(app, sql).await.remove(0);
    (most["letters"].as_i64().expect("a count"), most["bytes"].as_i64().expect("a sum"))
}

async fn dead_letters(app: &App) -> i64 {
    app.count("SELECT count(*) FROM waybill.dead_letters").await
}

/// Claims all pending pushes, as a dispatcher does.
async fn claim_pushes(app: &App) -> Vec<ClaimedPush> {
    app.engine().reload_subscribers(&[NamespaceId::DEFAULT]).await.expect("the subscriptions");
    let claim = |row: &Value| PushClaim {
        subscription: NamespaceId::DEFAULT.subscription(SubscriptionId(row["id"].as_i64().expect("an id"))),
        version: 1,
        limit: 1,
        lease_seconds: 30,
    };
    let claims: Vec<PushClaim> =
        rows(app, "SELECT id FROM waybill.subscriptions ORDER BY id").await.iter().map(claim).collect();
    app.engine().claim_pushes(&claims).await.expect("a claim")
}

fn fail_push(engine: &Engine, push: ClaimedPush) -> tokio::task::JoinHandle<()> {
    let engine = engine.clone();
    tokio::spawn(async move {
        engine
            .settle_push(&push, Report::default(), PushOutcome::GaveUp, Instant::now())
            .await
            .expect("it is recorded");
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_fail_together_are_dead_lettered_in_small_transactions() {
    let app = idle(&[]).await;
    app.subscribe_many(PUSHES, NOWHERE, json!({})).await;
    let event_id = app.publish(json!({"event_type": "order.paid", "payload": {"a": 1}})).await;
    let pushes = claim_pushes(&app).await;
    assert_eq!(pushes.len(), PUSHES);
    for given_up in join_all(pushes.into_iter().map(|push| fail_push(app.engine(), push))).await {
        given_up.expect("no panic");
    }
    let (most, _) = largest_transaction(&app).await;
    assert!(most <= MAX_DEAD_LETTERS, "{most} in one transaction");
    assert_eq!((dead_letters(&app).await, app.status(event_id).await), (PUSHES as i64, "FAILED".into()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_dead_letters_in_one_transaction_are_bounded() {
    let app = idle(&[]).await;
    app.subscribe_many(40, NOWHERE, json!({})).await;
    let payload = "x".repeat(300_000);
    let expires_at = app.now() + TimeDelta::seconds(10);
    app.publish(json!({"event_type": "order.paid", "payload": payload, "expires_at": expires_at})).await;
    let pushes = claim_pushes(&app).await;
    let sent = pushes.into_iter().take(10).map(|push| fail_push(app.engine(), push));
    join_all(sent).await;
    let (most, bytes) = largest_transaction(&app).await;
    assert!(bytes <= 1024 * 1024, "{bytes} bytes of {most} pushes in one transaction");
    app.advance(60);
    assert_eq!((app.reap().await, app.expire().await), (30, 30));
    let (most, bytes) = largest_transaction(&app).await;
    assert!(bytes <= 4 * 1024 * 1024, "{bytes} bytes of {most} pushes in one transaction");
    assert_eq!(dead_letters(&app).await, 40);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_expire_together_are_dead_lettered_in_small_transactions() {
    let app = idle(&[]).await;
    app.subscribe_many(PUSHES, NOWHERE, json!({})).await;
    let expires_at = app.now() + TimeDelta::seconds(10);
    app.publish(json!({"event_type": "order.paid", "expires_at": expires_at})).await;
    app.advance(10);
    assert_eq!(app.expire().await, PUSHES);
    let (most, _) = largest_transaction(&app).await;
    assert!(most <= MAX_DEAD_LETTERS, "{most} in one transaction");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_pushes_are_dead_lettered_in_small_transactions() {
    let app = idle(&["--poison-after", "1"]).await;
    app.subscribe_many(PUSHES, NOWHERE, json!({})).await;
    app.publish(json!({"event_type": "order.paid"})).await;
    let job = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    claim_pushes(&app).await;
    app.advance(300);
    assert_eq!(app.reap().await, PUSHES + 1);
    assert_eq!((app.reap().await, app.status(job).await), (0, "FAILED".into()));
    let (most, _) = largest_transaction(&app).await;
    assert!(most <= MAX_DEAD_LETTERS, "{most} in one transaction");
    assert_eq!(dead_letters(&app).await, PUSHES as i64);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_completion_does_not_wait_for_outcomes_of_pushes() {
    let app = idle(&[]).await;
    app.subscribe_many(3, NOWHERE, json!({})).await;
    let event_id = app.publish(json!({"event_type": "order.paid"})).await;
    let job = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let mut pushes = claim_pushes(&app).await.into_iter();
    // Every transaction that ends one of its pushes waits for the event's own row.
    let held = HeldRow::lock(&app, event_id).await;
    let first = fail_push(app.engine(), pushes.next().expect("a push"));
    app.until_blocked_calls(1).await;
    let second = fail_push(app.engine(), pushes.next().expect("a push"));
    app.until_blocked_calls(2).await;
    let third = fail_push(app.engine(), pushes.next().expect("a push"));
    app.complete(job, W1).await.expect(200);
    assert!(!first.is_finished() && !second.is_finished() && !third.is_finished());
    held.unlock().await;
    for given_up in [first, second, third] {
        given_up.await.expect("no panic");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_more_is_sent_while_too_many_outcomes_wait_to_be_recorded() {
    let (unrecorded, at_once) = (1_000, 50);
    let app = idle(&["--max-queued", "5000"]).await;
    let receiver = Receiver::start().await;
    receiver.always(Reply::status(404));
    app.subscribe_many(1_300, &receiver.url("/hook"), json!({})).await;
    let event_id = app.publish(json!({"event_type": "order.paid"})).await;
    let held = HeldRow::lock(&app, event_id).await;
    let mut dispatcher = dispatcher(&app, at_once);
    let mut rounds_without = 0;
    while rounds_without < 3 {
        let started = dispatch(&app, &mut dispatcher).await;
        until("all have been answered", async || app.engine().metrics().pushes_in_flight.get() == 0).await;
        rounds_without = if started == 0 { rounds_without + 1 } else { 0 };
    }
    let sent = receiver.so_far().len();
    assert!((unrecorded..=unrecorded + at_once).contains(&sent), "{sent} were sent");
    held.unlock().await;
    let all = async {
        while dead_letters(&app).await < 1_300 {
            dispatch(&app, &mut dispatcher).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), all).await.expect("all pushes have failed");
    assert_eq!(receiver.so_far().len(), 1_300);
    ledger::check(&app).await;
}
