//! Waiters are notified of new work even if a connection is lost meanwhile. The servers here poll
//! only once a minute, which is longer than these tests wait.

use waybill::background::promoter;

use crate::support::wire::{Cut, DatabaseProxy};
use crate::support::work::W1;
use crate::support::{App, Options, Reply, database, until, within_patience};
use serde_json::json;

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";

/// Starts a server behind a proxy, and another on the same database that receives its
/// notifications.
async fn two_servers(fixed_clock: bool) -> (App, DatabaseProxy, App) {
    let direct = database::migrated().await;
    let proxy = DatabaseProxy::to(&direct).await;
    let flags = || vec!["--poll-interval-ms=60000".to_owned()];
    let behind = Options { url: Some(proxy.url()), fixed_clock, flags: flags() };
    let mut one = App::start_with(behind).await;
    one.url.clone_from(&direct);
    let other = App::start_with(Options { url: Some(direct), fixed_clock, flags: flags() }).await;
    until("both listen", async || one.count(LISTENERS).await == 2).await;
    // The notifications that servers send each other when they begin to listen have been received.
    for (publisher, deliverer) in [(&one, &other), (&other, &one)] {
        let waiter = Waiting::at(deliverer, "before").await;
        publisher.publish_tagged("before").await;
        waiter.assert_gets_an_event().await;
    }
    (one, proxy, other)
}

/// A worker that waits for work.
struct Waiting(tokio::task::JoinHandle<Reply>);

impl Waiting {
    async fn at(app: &App, tag: &str) -> Self {
        let request =
            app.client.get(format!("{}/events/subscribe?tags={tag}&worker_id=waiter:1&wait_seconds=60", app.base));
        let waiting = Self(tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await }));
        let hub = app.engine().hub().clone();
        until("it waits", async || hub.len() == 1 && hub.asleep() == 1).await;
        waiting
    }

    async fn assert_gets_an_event(self) {
        within_patience(self.0).await.expect("no panic").expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_whose_commit_gets_no_response_still_notifies_waiters() {
    for at_other in [false, true] {
        let (one, proxy, other) = two_servers(true).await;
        let waiter = Waiting::at(if at_other { &other } else { &one }, "a").await;
        one.publish(json!({"title": "later", "tags": "a", "delay_seconds": 1})).await;
        one.advance(1);
        proxy.cut_at("COMMIT", Cut::After);
        promoter::run_once(one.engine()).await.expect_err("the response is lost");
        assert!(proxy.was_cut());
        waiter.assert_gets_an_event().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_whose_commit_gets_no_response_still_notifies_waiters() {
    for at_other in [false, true] {
        let (one, proxy, other) = two_servers(true).await;
        let id = one.publish_tagged("a").await;
        one.claim_one("a", W1).await;
        let waiter = Waiting::at(if at_other { &other } else { &one }, "a").await;
        proxy.cut_at("COMMIT", Cut::After);
        one.operate(id, "reset").await.problem(503, "outcome_unknown");
        waiter.assert_gets_an_event().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_due_time_stored_by_a_commit_without_a_response_is_not_missed() {
    let (one, proxy, _other) = two_servers(true).await;
    let id = one.publish_tagged("a").await;
    let claim = one.claim_one("a", W1).await;
    one.publish(json!({"title": "much later", "tags": "a", "delay_seconds": 60})).await;
    one.promote().await;
    proxy.cut_at("COMMIT", Cut::After);
    one.settle_with(&claim, "fail", json!({"retry_after_seconds": 5})).await.problem(503, "outcome_unknown");
    one.advance(5);
    assert_eq!(one.promote().await, 1, "event {id} is due");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_that_could_not_be_sent_is_sent_again() {
    let (one, proxy, other) = two_servers(false).await;
    let waiter = Waiting::at(&other, "a").await;
    proxy.cut_at("pg_notify", Cut::Before);
    one.publish_tagged("a").await;
    waiter.assert_gets_an_event().await;
    assert!(proxy.was_cut());
}

/// A killed server may not have notified the others of everything that it stored. The server that
/// is started next does so.
#[tokio::test(flavor = "multi_thread")]
async fn a_starting_server_makes_the_others_look_for_work() {
    let (one, _proxy, other) = two_servers(false).await;
    let waiter = Waiting::at(&other, "a").await;
    // Publishes like a server that was killed before it notified the others.
    let flags = vec!["--poll-interval-ms=60000".into(), "--notify=false".into()];
    let silent = App::start_with(Options { url: Some(one.url.clone()), flags, ..Options::default() }).await;
    silent.publish_tagged("a").await;
    let flags = vec!["--poll-interval-ms=60000".into()];
    let _fresh = App::start_with(Options { url: Some(one.url.clone()), flags, ..Options::default() }).await;
    waiter.assert_gets_an_event().await;
}
