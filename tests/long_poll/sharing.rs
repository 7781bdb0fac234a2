//! Waiting workers share statements: those that poll while there is work are served by one batch,
//! and many events wake many workers.

use serde_json::{Value, json};

use super::{Waiter, flags, publish_with_key, quiet, until_asleep};
use crate::support::wire::DatabaseProxy;
use crate::support::{App, HeldTable, Options, Reply, database, until, within_patience};

const WORKERS: usize = 16;

/// A part of the text of the statement that claims.
pub(super) const CLAIM: &str = "-- claim_deliveries";

/// Starts a server whose statements are counted, and which polls only once a minute.
pub(super) async fn counted_app() -> (App, DatabaseProxy) {
    let url = database::migrated().await;
    let proxy = DatabaseProxy::to(&url).await;
    let mut app = App::start_with(Options { flags: quiet(), url: Some(proxy.url()), ..Options::default() }).await;
    app.url = url;
    (app, proxy)
}

async fn publish_many(app: &App, events: usize) {
    let events: Vec<Value> = (0..events).map(|_| json!({"title": "t", "tags": "a"})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
}

/// Polls with a wait of a minute, in the background.
fn poll(app: &App, worker: usize) -> tokio::task::JoinHandle<Reply> {
    let request = app.client.get(format!("{}/events/subscribe?tags=a&worker_id=w:{worker}&wait_seconds=60", app.base));
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

/// Asserts that each worker has got an event of its own.
async fn assert_all_are_served(workers: Vec<tokio::task::JoinHandle<Reply>>) {
    let mut ids = Vec::new();
    for worker in workers {
        let reply = within_patience(worker).await.expect("the worker did not panic");
        ids.push(reply.expect(200).json()["id"].as_i64().expect("an id"));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), WORKERS);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_poll_a_backlog_are_served_by_one_statement() {
    let (app, proxy) = counted_app().await;
    publish_many(&app, WORKERS).await;
    let before = proxy.statements(CLAIM);
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let mut workers = vec![poll(&app, 1)];
    held.until_blocked().await;
    workers.extend((2..=WORKERS).map(|worker| poll(&app, worker)));
    until("the others poll, too", async || app.engine().queued().claim == WORKERS - 1).await;
    held.unlock().await;
    assert_all_are_served(workers).await;
    assert_eq!(proxy.statements(CLAIM) - before, 2, "one for the first claim, one for all others");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_woken_by_a_batch_of_events_claim_it_in_few_statements() {
    let (app, proxy) = counted_app().await;
    let workers: Vec<_> = (1..=WORKERS).map(|worker| poll(&app, worker)).collect();
    until_asleep(&app, WORKERS).await;
    let before = proxy.statements(CLAIM);
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    // With ordering keys, because other events would be handed over.
    let keyed = |n: usize| json!({"title": "t", "tags": "a", "ordering_key": format!("k{n}")});
    let events: Vec<Value> = (0..WORKERS).map(keyed).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    held.until_blocked().await;
    let claiming = || app.engine().hub().asleep() == 0;
    until("all workers are awake", async || claiming()).await;
    held.unlock().await;
    assert_all_are_served(workers).await;
    let statements = proxy.statements(CLAIM) - before;
    assert!(statements <= 3, "{statements} statements for {WORKERS} events");
}

/// Work without a wake-up of its own is claimed by all waiting workers once one of them is woken.
#[tokio::test(flavor = "multi_thread")]
async fn one_wake_up_lets_all_waiters_claim_a_backlog() {
    let (app, proxy) = counted_app().await;
    let workers: Vec<_> = (1..=WORKERS).map(|worker| poll(&app, worker)).collect();
    until_asleep(&app, WORKERS).await;
    let other = App::start_with(Options { flags: quiet(), url: Some(app.url.clone()), ..Options::default() }).await;
    publish_many(&other, WORKERS - 1).await;
    let before = proxy.statements(CLAIM);
    publish_with_key(&app, "k").await;
    assert_all_are_served(workers).await;
    let statements = proxy.statements(CLAIM) - before;
    assert!(statements < WORKERS, "{statements} statements for {WORKERS} events");
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_from_another_server_wake_only_the_waiters_of_their_queue() {
    let line = flags("--poll-interval-ms 60000");
    let one = App::start_with(Options { flags: line.clone(), ..Options::default() }).await;
    let other = App::start_with(Options { flags: line, url: Some(one.url.clone()), ..Options::default() }).await;
    until("both listen", async || one.count(super::LISTENERS).await == 2).await;
    let third = Waiter::enter(&other, "b", "w:3").await;
    let first = Waiter::enter(&other, "a,b", "w:1").await;
    let second = Waiter::enter(&other, "a", "w:2").await;
    publish_many(&one, 2).await;
    first.event().await;
    second.event().await;
    assert!(third.is_still_waiting());
}
