//! Old weeks of the event log are dropped as a whole, and archived before if there is a folder for that.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use diesel_async::SimpleAsyncConnection;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use waybill::background::retention::RetentionSettings;
use waybill::background::retention::event_log::run_once;

use super::publish_completed;
use crate::support::retention::{DAY, by_default};
use crate::support::{App, database, until};

/// The key of the lock of whoever drops weeks.
const LOCK: &str = "hashtextextended('waybill.drop_log_partitions', 0)";

const WEEKS: &str = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'waybill.event_log'::regclass";

async fn trail(app: &App, id: i64) -> Vec<Value> {
    app.get(&format!("/logs?event_id={id}")).await.expect(200).json()["logs"].as_array().expect("logs").clone()
}

/// Returns the name of the table that has the log of an event.
async fn week_of(app: &App, id: i64) -> String {
    let sql = format!(
        "SELECT right(tableoid::regclass::text, 8)::bigint FROM waybill.event_log WHERE event_id = {id} LIMIT 1"
    );
    format!("event_log_{}", app.count(&sql).await)
}

fn archiving(dir: &Path) -> RetentionSettings {
    RetentionSettings { archive_dir: Some(dir.to_owned()), ..by_default() }
}

fn read_archive(dir: &Path, week: &str) -> Vec<Value> {
    let file = File::open(dir.join(format!("{week}.ndjson.gz"))).expect("the archive");
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    lines.map(|line| serde_json::from_str(&line.expect("text")).expect("an object")).collect()
}

fn files(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .expect("a folder")
        .map(|file| file.expect("a file").file_name().to_string_lossy().into())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_of_the_log_is_dropped_when_all_of_it_is_older_than_the_retention() {
    let app = App::with_fixed_clock().await;
    let id = publish_completed(&app, "a").await;
    let weeks = app.count(WEEKS).await;
    app.advance(90 * DAY);
    assert_eq!(run_once(app.engine(), &by_default()).await.expect("a round"), 0, "the week was not over");
    assert_eq!(trail(&app, id).await.len(), 2);
    app.advance(7 * DAY);
    assert_eq!(run_once(app.engine(), &by_default()).await.expect("a round"), 1);
    assert_eq!(app.count(WEEKS).await, weeks - 1);
    assert!(trail(&app, id).await.is_empty());
    let metrics = app.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("waybill_removed_rows_total{table=\"event_log\"} 1\n"), "{metrics}");
    assert!(metrics.contains("waybill_retention_lag_seconds{table=\"event_log\"} 0.0\n"), "{metrics}");
    publish_completed(&app, "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_names_who_caused_an_entry() {
    let app = App::with_fixed_clock().await;
    app.advance(30 * DAY);
    let event = json!({"title": "a job", "tags": "a", "expires_at": app.now() + chrono::TimeDelta::seconds(1)});
    let (_, dir) = (app.publish(event).await, tempfile::tempdir().expect("a folder"));
    app.advance(2);
    assert_eq!(app.expire().await, 1);
    app.advance(97 * DAY);
    run_once(app.engine(), &archiving(dir.path())).await.expect("a round");
    let entries: Vec<Value> = files(dir.path()).iter().flat_map(|name| read_archive(dir.path(), &name[..18])).collect();
    assert_eq!(entries.len(), 1);
    assert_eq!((&entries[0]["action"], &entries[0]["actor"]), (&json!("EXPIRED"), &json!("server:expirer")));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_week_that_nobody_prepared_leave_too() {
    let app = App::with_fixed_clock().await;
    app.advance(30 * DAY);
    let (id, dir) = (publish_completed(&app, "a").await, tempfile::tempdir().expect("a folder"));
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log_default").await, 2);
    app.advance(97 * DAY);
    run_once(app.engine(), &archiving(dir.path())).await.expect("a round");
    assert!(trail(&app, id).await.is_empty());
    let archived: usize = files(dir.path()).iter().map(|name| read_archive(dir.path(), &name[..18]).len()).sum();
    assert_eq!(archived, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_has_every_entry_of_its_week_and_can_be_read_back() {
    let (app, dir) = (App::with_fixed_clock().await, tempfile::tempdir().expect("a folder"));
    let id = publish_completed(&app, "a").await;
    let (week, before) = (week_of(&app, id).await, trail(&app, id).await);
    let many = "INSERT INTO waybill.event_log (event_id, lease_id, attempt, action, worker_id, error_message)
                SELECT n, n, 1, 'FAILED', 'w:' || n, repeat('é\"' || chr(10), 20) FROM generate_series(1000, 30999) n";
    database::execute(&app.url, many).await;
    app.advance(98 * DAY);
    assert_eq!(run_once(app.engine(), &archiving(dir.path())).await.expect("a round"), 1);
    assert_eq!(files(dir.path()), [format!("{week}.ndjson.gz")]);
    let lines = read_archive(dir.path(), &week);
    assert_eq!(lines.len(), 30_002);
    let ids: BTreeSet<i64> = lines.iter().map(|line| line["id"].as_i64().expect("an id")).collect();
    assert_eq!(ids.len(), 30_002, "each once");
    for (line, shown) in lines.iter().filter(|line| line["event_id"] == id).zip(&before) {
        for field in ["id", "event_id", "action", "worker_id", "attempt", "lease_id"] {
            assert_eq!(line[field], shown[field], "{field}");
        }
    }
    assert_eq!(lines[30_001]["error_message"], json!("é\"\n".repeat(20)));
    assert_eq!(app.count(&format!("SELECT count(*) FROM pg_class WHERE relname = '{week}'")).await, 0);
}

/// A server that is killed leaves a part of a file, or a detached table. A restored database has a week again whose
/// archive is there and may have more lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_round_goes_on_where_a_killed_server_stopped_and_replaces_no_archive() {
    let (app, dir) = (App::with_fixed_clock().await, tempfile::tempdir().expect("a folder"));
    let id = publish_completed(&app, "a").await;
    let week = week_of(&app, id).await;
    app.advance(98 * DAY);
    database::execute(&app.url, &format!("ALTER TABLE waybill.event_log DETACH PARTITION waybill.{week}")).await;
    fs::write(dir.path().join(format!(".{week}.4711-0badcafe.part")), "half of a fi").expect("a file");
    let earlier = dir.path().join(format!("{week}.ndjson.gz"));
    fs::write(&earlier, "archived before a restore").expect("a file");
    assert_eq!(run_once(app.engine(), &archiving(dir.path())).await.expect("a round"), 1);
    assert_eq!(files(dir.path()), [format!("{week}-2.ndjson.gz"), format!("{week}.ndjson.gz")]);
    assert_eq!(fs::read_to_string(earlier).expect("it is unchanged"), "archived before a restore");
    assert_eq!(read_archive(dir.path(), &format!("{week}-2")).len(), 2);
    assert_eq!(app.count(&format!("SELECT count(*) FROM pg_class WHERE relname = '{week}'")).await, 0);
    assert_eq!(run_once(app.engine(), &archiving(dir.path())).await.expect("a round"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_that_cannot_be_archived_is_not_dropped() {
    let (app, dir) = (App::with_fixed_clock().await, tempfile::tempdir().expect("a folder"));
    let id = publish_completed(&app, "a").await;
    let week = week_of(&app, id).await;
    app.advance(98 * DAY);
    let missing = archiving(&dir.path().join("missing"));
    for _ in 0..2 {
        run_once(app.engine(), &missing).await.expect_err("there is no folder");
        assert_eq!(app.count(&format!("SELECT count(*) FROM waybill.{week}")).await, 2);
    }
    let metrics = app.get("/metrics").await.expect(200).text;
    assert!(!metrics.contains("waybill_retention_lag_seconds{table=\"event_log\"} 0.0\n"), "{metrics}");
    assert_eq!(run_once(app.engine(), &archiving(dir.path())).await.expect("a round"), 1);
    assert_eq!(read_archive(dir.path(), &week).len(), 2);
}

/// A week of any size stays within the time limit of a statement if no statement reads all of it. A view keeps the week
/// from being dropped, so that its statistics can be read.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_reads_a_whole_week() {
    let (app, dir) = (App::with_fixed_clock().await, tempfile::tempdir().expect("a folder"));
    let id = publish_completed(&app, "a").await;
    let week = week_of(&app, id).await;
    database::execute(&app.url, &format!("CREATE VIEW waybill.used AS SELECT id FROM waybill.{week}")).await;
    app.advance(98 * DAY);
    let statistics = |column: &str| {
        format!("SELECT {column} FROM pg_stat_all_tables WHERE schemaname = 'waybill' AND relname = '{week}'")
    };
    let before = app.count(&statistics("seq_scan")).await;
    run_once(app.engine(), &archiving(dir.path())).await.expect_err("the week is used");
    assert_eq!(read_archive(dir.path(), &week).len(), 2);
    until("the reads are counted", async || app.count(&statistics("seq_tup_read")).await >= 2).await;
    assert_eq!(app.count(&statistics("seq_scan")).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_is_left_to_the_server_that_is_dropping_weeks() {
    let (app, dir) = (App::with_fixed_clock().await, tempfile::tempdir().expect("a folder"));
    let id = publish_completed(&app, "a").await;
    let week = week_of(&app, id).await;
    app.advance(98 * DAY);
    let mut other = database::connection(&app.url).await;
    other.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})")).await.expect("the lock");
    let part = format!(".{week}.4711-0badcafe.part");
    fs::write(dir.path().join(&part), "what the other has written so far").expect("a file");
    assert_eq!(run_once(app.engine(), &archiving(dir.path())).await.expect("a round"), 0);
    assert_eq!(app.count(&format!("SELECT count(*) FROM waybill.{week}")).await, 2);
    assert_eq!(files(dir.path()), [part]);
    let metrics = app.get("/metrics").await.expect(200).text;
    assert!(!metrics.contains("waybill_retention_lag_seconds{table=\"event_log\"} 0.0\n"), "{metrics}");
    other.batch_execute("ROLLBACK").await.expect("the other is gone");
    assert_eq!(run_once(app.engine(), &archiving(dir.path())).await.expect("a round"), 1);
    assert_eq!(files(dir.path()), [format!("{week}.ndjson.gz")], "what the other has left is deleted");
}

/// The lock needs a connection of its own, which servers would open every few minutes for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_asks_for_the_lock_only_if_there_is_something_to_drop() {
    let app = App::with_fixed_clock().await;
    let name = "ALTER DATABASE %I SET pg_stat_statements.track = ''all''";
    let counted = format!("DO $$ BEGIN EXECUTE format('{name}', current_database()); END $$");
    database::execute(&app.url, &format!("CREATE EXTENSION pg_stat_statements; {counted}")).await;
    let locks = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                   AND query LIKE 'SELECT pg_try_advisory_xact_lock(hashtextextended(%) AS is_ours'";
    publish_completed(&app, "a").await;
    assert_eq!(run_once(app.engine(), &by_default()).await.expect("a round"), 0);
    assert_eq!(app.count(locks).await, 0);
    app.advance(98 * DAY);
    assert_eq!(run_once(app.engine(), &by_default()).await.expect("a round"), 1);
    assert_eq!(app.count(locks).await, 1);
}

/// Archiving may take hours.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_that_is_dropping_weeks_holds_no_snapshot() {
    let (app, dir) = (App::with_fixed_clock().await, tempfile::tempdir().expect("a folder"));
    let id = publish_completed(&app, "a").await;
    let week = week_of(&app, id).await;
    app.advance(98 * DAY);
    database::execute(&app.url, &format!("ALTER TABLE waybill.event_log DETACH PARTITION waybill.{week}")).await;
    let mut reader = database::connection(&app.url).await;
    reader.batch_execute(&format!("BEGIN; LOCK TABLE waybill.{week}")).await.expect("the week is locked");
    let holder = format!(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
         WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint << 32 | l.objid::bigint = {LOCK}
           AND a.state = 'idle in transaction' AND a.backend_xmin IS NULL"
    );
    let settings = archiving(dir.path());
    let (dropped, ()) = tokio::join!(run_once(app.engine(), &settings), async {
        until("the lock is held without a snapshot", async || app.count(&holder).await == 1).await;
        reader.batch_execute("COMMIT").await.expect("the week is let go");
    });
    assert_eq!(dropped.expect("a round"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_use_is_not_waited_for_and_holds_up_no_writer() {
    let app = App::with_fixed_clock().await;
    let id = publish_completed(&app, "a").await;
    app.advance(98 * DAY);
    let mut reader = database::connection(&app.url).await;
    reader.batch_execute("BEGIN; SELECT count(*) FROM waybill.event_log").await.expect("a long read");
    let is_over = AtomicBool::new(false);
    let dropping = async {
        run_once(app.engine(), &by_default()).await.expect_err("the log is in use");
        is_over.store(true, Ordering::Relaxed);
    };
    // Whoever writes to the log waits behind a statement that wants to detach a week, and that waits for the reader.
    let writing = async {
        let mut writer = database::connection(&app.url).await;
        writer.batch_execute("SET lock_timeout = '500ms'").await.expect("a setting");
        while !is_over.load(Ordering::Relaxed) {
            let line = "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt) VALUES (0, 'PICKED', 1, 1)";
            writer.batch_execute(line).await.expect("it is written soon");
        }
    };
    tokio::join!(dropping, writing);
    assert_eq!(trail(&app, id).await.len(), 2, "nothing has changed");
    publish_completed(&app, "b").await;
    reader.batch_execute("COMMIT").await.expect("its end");
    assert_eq!(run_once(app.engine(), &by_default()).await.expect("a round"), 1);
}
