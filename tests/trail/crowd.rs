//! What streams cost the database.

use std::time::Instant;

use futures_util::future::join_all;
use waybill::background::log_summarizer;
use waybill::store::lists::log_tail::read_log_tail;

use super::add_entry;
use crate::long_poll::crowd::{ONE_CROWD, allow_files};
use crate::support::event_stream::EventStream;
use crate::support::wire::DatabaseProxy;
use crate::support::{App, Options, database, until};

/// Parts of the texts of statements, by which the proxy counts them.
const LOOK: &str = "-- read_log_writers";
const READ: &str = "-- read_log_tail";
const POLL: &str = "-- find_busy_queues";

/// Any access to the log, and one that a service makes every few seconds.
const LOG: &str = "waybill.event_log";
const SUMMARIZE: &str = "-- summarize_log";

/// The shortest time between two looks at the log, in milliseconds.
const SHORTEST_INTERVAL: u128 = 25;

/// Starts a server on a database that counts statements.
async fn counting_app(flags: &[&str]) -> (App, DatabaseProxy) {
    let url = database::migrated().await;
    let proxy = DatabaseProxy::to(&url).await;
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let mut app = App::start_with(Options { url: Some(proxy.url()), flags, ..Options::default() }).await;
    app.url = url;
    (app, proxy)
}

/// The number of statements about the log.
#[derive(Debug)]
struct Cost {
    /// Looks at the transactions that write to it.
    looks: usize,
    /// Reads of new entries.
    reads: usize,
    /// All others.
    others: usize,
}

impl Cost {
    /// Returns what all statements so far have cost.
    fn so_far(proxy: &DatabaseProxy) -> Self {
        let mut cost = Cost { looks: 0, reads: 0, others: 0 };
        for (text, count) in proxy.all() {
            let counter = match &text {
                text if text.contains(LOOK) => &mut cost.looks,
                text if text.contains(READ) => &mut cost.reads,
                text if text.contains(LOG) && !text.contains(SUMMARIZE) => &mut cost.others,
                _ => continue,
            };
            *counter += count;
        }
        cost
    }
}

/// Opens this many streams, adds entries one after the other, and waits until each stream has each of them.
async fn follow(readers: usize, entries: usize) -> Cost {
    let (app, proxy) = counting_app(&[]).await;
    let begun = Instant::now();
    let mut streams = join_all((0..readers).map(|_| EventStream::open(&app, ""))).await;
    for n in 0..entries {
        add_entry(&app, &format!("w:{n}")).await;
        for stream in &mut streams {
            assert_eq!(stream.entry().await["worker_id"], format!("w:{n}"));
        }
    }
    let cost = Cost::so_far(&proxy);
    let most_looks = begun.elapsed().as_millis() / SHORTEST_INTERVAL + 2;
    assert!(cost.looks as u128 <= most_looks, "{readers} readers: {cost:?}, but at most {most_looks} looks");
    app.stop().await;
    cost
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_readers_cost_the_database_what_one_costs() {
    const ENTRIES: usize = 10;
    let _one_crowd = ONE_CROWD.lock().await;
    allow_files();
    let (one, thousand) = (follow(1, ENTRIES).await, follow(1_000, ENTRIES).await);
    for cost in [&one, &thousand] {
        // One more, at the beginning; and an entry may come while the database is read.
        assert!((ENTRIES..=2 * ENTRIES + 2).contains(&cost.reads), "{one:?} {thousand:?}");
    }
    assert_eq!(thousand.others, one.others, "{one:?} {thousand:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_readers_that_come_back_find_what_they_have_missed_in_memory() {
    let _one_crowd = ONE_CROWD.lock().await;
    allow_files();
    let (app, proxy) = counting_app(&[]).await;
    let first = EventStream::open(&app, "").await;
    let last_id = first.last_id.clone();
    drop(first);
    for n in 0..20 {
        add_entry(&app, &format!("w:{n}")).await;
    }
    let before = Cost::so_far(&proxy);
    let mut streams = join_all((0..1_000).map(|_| EventStream::open_behind(&app, "", &last_id))).await;
    for stream in &mut streams {
        assert_eq!(stream.ids(20).await.len(), 20);
    }
    let after = Cost::so_far(&proxy);
    assert!(after.reads - before.reads <= 5, "{before:?} {after:?}");
    assert_eq!(after.others, before.others, "{before:?} {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_entries_are_read_cheaply_from_a_large_log() {
    let app = App::start().await;
    let history = "INSERT INTO waybill.event_log (namespace_id, event_id, action, lease_id, attempt, created_at) \
                   SELECT 1 + n % 3, n, 'PICKED', 1, 1, now() - (50000 - n) * interval '20 seconds' \
                   FROM generate_series(1, 50000) AS n; ANALYZE waybill.event_log";
    database::execute(&app.url, history).await;
    assert!(log_summarizer::run_once(app.engine()).await.expect("a round") > 0);
    let last = app.count("SELECT max(id) FROM waybill.event_log").await;
    let read = async |conn: &mut _| read_log_tail(conn, last - 100, last, None, 1_000_000).await;
    let (found, buffers) = app.buffers_of_repeated(read).await;
    assert_eq!(found.len(), 100);
    assert!(buffers < 100, "{buffers} buffers");
}

/// The polls of queues measure the time.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stream_costs_one_small_statement_per_look_and_no_stream_costs_nothing() {
    let (app, proxy) = counting_app(&["--poll-interval-ms=50"]).await;
    let waiting = app.client.get(format!("{}/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60", app.base)).send();
    let waiting = tokio::spawn(waiting);
    let after_polls = async |count: usize| {
        let before = proxy.statements(POLL);
        until("queues were polled", async || proxy.statements(POLL) >= before + count).await;
    };
    after_polls(5).await;
    assert_eq!(proxy.statements(LOOK), 0, "nobody listens");
    let stream = EventStream::open(&app, "").await;
    until("the log was looked at", async || proxy.statements(LOOK) > 3).await;
    let before = Cost::so_far(&proxy);
    until("the log was looked at again", async || proxy.statements(LOOK) >= before.looks + 10).await;
    let after = Cost::so_far(&proxy);
    assert_eq!((after.reads, after.others), (before.reads, before.others), "only looks");
    drop(stream);
    after_polls(20).await;
    let looks = proxy.statements(LOOK);
    after_polls(20).await;
    assert_eq!(proxy.statements(LOOK), looks, "nobody listens any more");
    waiting.abort();
}
