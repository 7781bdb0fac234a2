//! Outages while counts are stored: nothing is lost and nothing counts twice.

use waybill::background::stats_recorder;
use waybill::domain::ids::NamespaceId;
use waybill::domain::stats::{Counter, Counts};
use waybill::store::tables::stats::{Period, StatsRow, record_stats};

use super::{publish_completed, record, servers, sum};
use crate::support::locks::HeldRow;
use crate::support::wire::{Cut, DatabaseProxy};
use crate::support::work::W1;
use crate::support::{App, Options, database};

const RECORD: &str = "-- record_stats";

async fn app_behind_a_proxy() -> (App, DatabaseProxy) {
    let direct = database::migrated().await;
    let proxy = DatabaseProxy::to(&direct).await;
    let mut app = App::start_with(Options { url: Some(proxy.url()), fixed_clock: true, ..Options::default() }).await;
    app.url = direct;
    (app, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_loses_nothing_and_counts_nothing_twice() {
    for cut in [Cut::Before, Cut::After] {
        let (app, proxy) = app_behind_a_proxy().await;
        publish_completed(&app, "a").await;
        proxy.cut_at(RECORD, cut);
        stats_recorder::run_once(app.engine()).await.expect_err("the response is lost");
        assert!(proxy.was_cut());
        publish_completed(&app, "a").await;
        record([&app]).await;
        record([&app]).await;
        for metric in ["published", "claimed", "completed"] {
            assert_eq!(sum(&app, Some("a"), metric).await, 2, "{metric}, {cut:?}");
            assert_eq!(sum(&app, None, metric).await, 2, "{metric} in total, {cut:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_that_could_not_be_looked_up_are_looked_up_later() {
    let (two, proxy) = app_behind_a_proxy().await;
    let one = App::start_with(Options { url: Some(two.url.clone()), fixed_clock: true, ..Options::default() }).await;
    one.publish_tagged("a").await;
    let claim = one.claim_one("a", W1).await;
    two.complete(claim.event_id, W1).await.expect(200);
    proxy.cut_at("-- find_published_events", Cut::Before);
    stats_recorder::run_once(two.engine()).await.expect_err("the connection is lost");
    assert_eq!((sum(&two, None, "completed").await, sum(&two, Some("a"), "completed").await), (1, 0));
    record([&two]).await;
    assert_eq!((sum(&two, None, "completed").await, sum(&two, Some("a"), "completed").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_comes_late_does_not_replace_newer_counts() {
    let [app] = servers().await;
    let seconds = app.now().timestamp();
    let row = |period, published| {
        let mut counts = Counts::default();
        (0..published).for_each(|_| counts.add(Counter::Published));
        StatsRow { period, namespace: NamespaceId::DEFAULT, tag: "a".into(), counts }
    };
    for (revision, published) in [(1, 1), (3, 3), (2, 2)] {
        let rows = [Period::Minute(seconds / 60), Period::Hour(seconds / 3_600)].map(|period| row(period, published));
        let mut conn = app.engine().database().connection().await.expect("a connection");
        record_stats(&mut conn, 7, revision, &rows).await.expect("the rows are stored");
    }
    assert_eq!(sum(&app, Some("a"), "published").await, 3);
}

/// Servers write rows of their own, so none waits for another.
#[tokio::test(flavor = "multi_thread")]
async fn servers_store_their_counts_without_waiting_for_each_other() {
    let [one, two] = servers().await;
    publish_completed(&one, "a").await;
    record([&one]).await;
    publish_completed(&two, "a").await;
    let mut held = HeldRow::with_uncommitted(&one, "SELECT 1 FROM waybill.stats_minutes FOR UPDATE").await;
    held.execute("SELECT 1 FROM waybill.stats_hours FOR UPDATE").await;
    record([&two]).await;
    assert_eq!(sum(&one, Some("a"), "completed").await, 2);
    held.unlock().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_while_nothing_happens() {
    let (app, proxy) = app_behind_a_proxy().await;
    publish_completed(&app, "a").await;
    record([&app]).await;
    assert_eq!(proxy.statements(RECORD), 1, "all that has changed is one statement");
    assert_eq!(record([&app]).await, 0);
    assert_eq!(proxy.statements(RECORD), 1);
}
