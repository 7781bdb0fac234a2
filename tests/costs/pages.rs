//! What pages of the dashboard cost among a million events, in buffers: the sum of what each reads.

use chrono::{TimeDelta, Utc};
use waybill::domain::ids::NamespaceId;
use waybill::domain::scope::Scope;
use waybill::domain::stats::window::StatsWindow;
use waybill::domain::status::Status;
use waybill::store::lists::attention::{list_failures, list_open_breakers, list_stale_workers, read_tag_latencies};
use waybill::store::lists::events::{EventFilter, list_events};
use waybill::store::lists::pages::{NamePage, Page};
use waybill::store::lists::stats::{
    StatsCaps, read_recent_counts, read_stats, read_stats_history, read_stats_latencies,
};
use waybill::store::lists::tags::list_tags;
use waybill::store::tables::workers::list_workers;

use super::lists;
use crate::support::{App, database};

/// The most that each page may cost. A page of 50 ms could read ten times as many.
const MOST_OF_OVERVIEW: i64 = 500;
const MOST_OF_EVENTS: i64 = 700;
/// COMPLETED has no index: the first thousand events are looked up one by one.
const MOST_OF_COMPLETED: i64 = 5_000;
const MOST_OF_WORKERS: i64 = 100;
const MOST_OF_TAGS: i64 = 200;

/// The most that the failures on the overview may cost: 300 events, each with its delivery.
const MOST_OF_FAILURES: i64 = 1_600;

fn scope(namespace: i32) -> Scope {
    Scope::new(NamespaceId(namespace), None)
}

fn names(limit: i64) -> NamePage {
    NamePage { descending: false, after: None, limit }
}

/// Almost all events of the first namespace are completed, those of the third wait, and the second has none.
const NAMESPACES: [i32; 3] = [1, 2, 3];

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_is_read_at_a_bounded_cost() {
    let app = lists::app().await;
    let now = Utc::now();
    let window = StatsWindow::new(now - TimeDelta::hours(1), now, None, now).expect("a window");
    let caps = StatsCaps { waiting: 10_000, others: 1_000, stale_seconds: 30.0 };
    for namespace in NAMESPACES {
        let scope = scope(namespace);
        let reads = async |conn: &mut diesel_async::AsyncPgConnection| {
            read_stats(conn, &scope, caps).await?;
            let tags = list_tags(conn, &scope, &names(101), 1_000).await?;
            let tags: Vec<&str> = tags.iter().map(|row| row.tag.as_str()).chain([""]).collect();
            read_recent_counts(conn, &scope, &tags, now - TimeDelta::minutes(5)).await?;
            read_stats_history(conn, &scope, "", &window).await?;
            read_stats_latencies(conn, &scope, "", &window).await?;
            list_failures(conn, &scope, 86_400.0, 300).await?;
            list_stale_workers(conn, &scope, 30.0, 1_000, 5).await?;
            list_open_breakers(conn, &scope, 5).await?;
            read_tag_latencies(conn, &scope, &tags, now - TimeDelta::hours(2)).await
        };
        let (_, buffers) = app.buffers_of_repeated(reads).await;
        println!("overview of namespace {namespace}: {buffers} buffers");
        assert!(buffers <= MOST_OF_OVERVIEW, "namespace {namespace}: {buffers} buffers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_tags_are_read_at_a_bounded_cost() {
    let app = lists::app().await;
    for namespace in NAMESPACES {
        let scope = scope(namespace);
        let workers = async |conn: &mut _| list_workers(conn, &scope, 30.0, &names(50)).await;
        let (_, of_workers) = app.buffers_of_repeated(workers).await;
        let reads = async |conn: &mut diesel_async::AsyncPgConnection| {
            let rows = list_tags(conn, &scope, &names(50), 1_000).await?;
            let tags: Vec<&str> = rows.iter().map(|row| row.tag.as_str()).collect();
            read_recent_counts(conn, &scope, &tags, Utc::now() - TimeDelta::minutes(5)).await
        };
        let (_, of_tags) = app.buffers_of_repeated(reads).await;
        println!("namespace {namespace}: workers {of_workers}, tags {of_tags} buffers");
        assert!(of_workers <= MOST_OF_WORKERS && of_tags <= MOST_OF_TAGS, "{of_workers}, {of_tags} buffers");
    }
}

/// Returns what the filter line of the page can ask for, word by word.
fn filters() -> Vec<(&'static str, EventFilter)> {
    let any = EventFilter::default;
    let day_ago = Some(Utc::now() - TimeDelta::hours(24));
    let many = || Some("many".to_owned());
    let status = |status| EventFilter { status: Some(status), ..any() };
    vec![
        ("plain", any()),
        ("status:PENDING", status(Status::Pending)),
        ("status:PROCESSING", status(Status::Processing)),
        ("status:COMPLETED", status(Status::Completed)),
        ("status:FAILED", status(Status::Failed)),
        ("status:CANCELLED", status(Status::Cancelled)),
        ("tag:many", EventFilter { tags: vec!["many".into()], ..any() }),
        ("tag:few", EventFilter { tags: vec!["few".into()], ..any() }),
        ("type:many", EventFilter { event_type: many(), ..any() }),
        ("correlation:many", EventFilter { correlation_id: many(), ..any() }),
        ("key:many", EventFilter { ordering_key: many(), ..any() }),
        ("worker:host:1", EventFilter { worker_id: Some("host:1".into()), ..any() }),
        ("since:24h", EventFilter { since: day_ago, ..any() }),
        ("until:24h", EventFilter { until: day_ago, ..any() }),
        (
            "status:FAILED since:24h tag:many",
            EventFilter { since: day_ago, tags: vec!["many".into()], ..status(Status::Failed) },
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_events_is_read_at_a_bounded_cost() {
    let app = lists::app().await;
    let page = Page { descending: true, after: None, limit: 50, scan: 10_000 };
    let mut dear = Vec::new();
    for namespace in NAMESPACES {
        for (name, filter) in filters() {
            let scope = scope(namespace);
            let read = async |conn: &mut _| list_events(conn, &scope, &filter, page, 0).await;
            let (found, buffers) = app.buffers_of_repeated(read).await;
            println!("namespace {namespace}, {name}: {buffers} buffers for {} of {}", found.events.len(), found.total);
            let most = if name == "status:COMPLETED" { MOST_OF_COMPLETED } else { MOST_OF_EVENTS };
            if buffers > most {
                dear.push(format!("namespace {namespace}, {name}: {buffers} buffers"));
            }
        }
    }
    assert!(dear.is_empty(), "{dear:?}");
}

/// Fifty thousand events that have failed in the last hour.
const FAILURES: &str = "
    SELECT waybill.enforce_rules(false);
    INSERT INTO waybill.events (id, title, tags) SELECT n, 'a job', 'billing' FROM generate_series(1, 50000) n;
    INSERT INTO waybill.deliveries (id, event_id, status, listed_status, priority, max_retries)
        SELECT n, n, 'FAILED', 'FAILED', 0, 3 FROM generate_series(1, 50000) n;
    SELECT setval('waybill.ids', 60000);
";

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_failures_costs_the_overview_no_more_than_some_hundred_of_them() {
    let app = App::with_fixed_clock().await;
    database::execute(&app.url, FAILURES).await;
    // The statistics are those of empty tables at first.
    for state in ["believed empty", "analyzed"] {
        let read = async |conn: &mut _| list_failures(conn, &scope(1), 86_400.0, 300).await;
        let (rows, buffers) = app.buffers_of_repeated(read).await;
        println!("{state}: {buffers} buffers for {} failures", rows.len());
        assert!(rows.len() == 300 && rows.iter().all(|row| row.tags.is_some()));
        assert!(buffers <= MOST_OF_FAILURES, "{state}: {buffers} buffers");
        database::execute(&app.url, "ANALYZE waybill.deliveries, waybill.events").await;
    }
}
