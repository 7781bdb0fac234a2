//! The weekly partitions of the event log.

use std::sync::atomic::{AtomicBool, Ordering};

use diesel_async::SimpleAsyncConnection;

use crate::support::{App, Options, database};

const OLD_LINE: &str = "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt, created_at) \
     VALUES (1, 'PICKED', 1, 1, ";

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_created_late_takes_its_rows_from_the_default_partition() {
    let url = database::migrated().await;
    for time in
        ["2020-02-23T23:59:59.999999Z", "2020-02-24T00:00:00Z", "2020-03-01T23:59:59.999999Z", "2020-03-02T00:00:00Z"]
    {
        database::execute(&url, &format!("{OLD_LINE} '{time}')")).await;
    }
    let prepare = "SELECT waybill.create_event_log_partition('2020-02-29')::int";
    assert_eq!(database::count(&url, prepare).await, 1);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log_20200224").await, 2);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log_default").await, 2);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log").await, 4);
    assert_eq!(database::count(&url, prepare).await, 0, "the second time there is nothing to do");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_weeks_of_utc_whatever_the_time_zone_of_the_session() {
    let url = database::migrated().await;
    let prepare = "SET TIME ZONE 'Pacific/Auckland'; SELECT waybill.create_event_log_partition('2020-02-29')";
    database::execute(&url, prepare).await;
    database::execute(&url, &format!("{OLD_LINE} '2020-02-24T00:00:00Z')")).await;
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_log_20200224").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_has_the_indexes_of_the_log() {
    let url = database::migrated().await;
    database::execute(&url, "SELECT waybill.create_event_log_partition('2020-02-29')").await;
    let indexes = |table| format!("SELECT count(*) FROM pg_index WHERE indrelid = 'waybill.{table}'::regclass");
    let of_log = database::count(&url, &indexes("event_log")).await;
    assert!(of_log > 0);
    assert_eq!(database::count(&url, &indexes("event_log_20200224")).await, of_log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_creates_the_partitions_of_this_week_and_the_next() {
    let app = App::start().await;
    let prepared = "SELECT count(*) FROM generate_series(0, 7, 7) AS ahead WHERE to_regclass('waybill.event_log_' || \
                    to_char(date_trunc('week', now() AT TIME ZONE 'UTC') + make_interval(days => ahead), 'YYYYMMDD')) IS NOT NULL";
    assert_eq!(app.count(prepared).await, 2);
    app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log").await, 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log_default").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_can_create_the_same_partitions_at_once() {
    let url = database::migrated().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        tasks.spawn(async move {
            database::count(&url, "SELECT waybill.create_event_log_partition('2020-02-29')::int").await
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<i64>(), 1);
}

/// Whoever writes to the log waits behind a statement that wants to add a partition, and that waits for a reader.
#[tokio::test(flavor = "multi_thread")]
async fn writers_do_not_wait_long_while_a_reader_holds_up_a_new_partition() {
    let url = database::migrated().await;
    let mut reader = database::connection(&url).await;
    reader.batch_execute("BEGIN; LOCK TABLE waybill.event_log IN ACCESS SHARE MODE").await.expect("a lock");
    let is_started = AtomicBool::new(false);
    let starting = async {
        let app = App::start_with(Options { url: Some(url.clone()), ..Options::default() }).await;
        is_started.store(true, Ordering::Relaxed);
        app
    };
    let writing = async {
        let mut writer = database::connection(&url).await;
        writer.batch_execute("SET lock_timeout = '700ms'").await.expect("a setting");
        while !is_started.load(Ordering::Relaxed) {
            writer.batch_execute(&format!("{OLD_LINE} now())")).await.expect("it is written soon");
        }
    };
    let (app, ()) = tokio::join!(starting, writing);
    let partitions = "SELECT count(*) FROM pg_class WHERE relnamespace = 'waybill'::regnamespace AND relispartition \
                      AND relkind = 'r' AND relname <> 'event_log_default'";
    assert_eq!(app.count(partitions).await, 0, "the reader is in the way");
    reader.batch_execute("COMMIT").await.expect("the end");
}
