//! The database: its settings, indexes, partitions and migrations, and what holds dead rows back.

use diesel_async::SimpleAsyncConnection;
use serde_json::json;
use waybill::postgres::{Cluster, ClusterOptions};

use super::assert_says;
use crate::support::{App, ClusterDir, Options, database};

/// Starts a PostgreSQL of its own, which writes to the disk and allows commits in two phases.
fn durable_cluster() -> (Cluster, ClusterDir) {
    let place = ClusterDir::with_cluster();
    let mut options = ClusterOptions::new(place.data_dir());
    for (name, value) in [("fsync", "on"), ("full_page_writes", "on"), ("max_prepared_transactions", "5")] {
        options.settings.push((name.into(), value.into()));
    }
    (Cluster::start(options).expect("the cluster starts"), place)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_has_no_findings_until_something_holds_its_database_back() {
    let (_cluster, place) = tokio::task::spawn_blocking(durable_cluster).await.expect("it starts");
    let app = App::start_with(Options { url: Some(place.url()), fixed_clock: true, ..Options::default() }).await;
    let diagnosis = app.get("/doctor").await.expect(200).json();
    let checks = diagnosis["checks"].as_array().expect("checks");
    let findings: Vec<_> = checks.iter().filter(|check| check["status"] != "ok").collect();
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(diagnosis["status"], "ok");
    assert!(checks.len() >= 25 && checks.iter().all(|check| check["advice"].is_null()), "{checks:#?}");

    database::execute(&app.url, "BEGIN; CREATE TABLE t (); PREPARE TRANSACTION 'left'").await;
    database::execute(&app.url, "SELECT pg_create_physical_replication_slot('standby', true)").await;
    app.assert_check("prepared_transactions", "ok").await;
    app.advance(400);
    let prepared = app.assert_check("prepared_transactions", "warning").await;
    assert_says(&prepared["advice"], "ROLLBACK PREPARED 'left';");
    app.advance(4_000);
    app.assert_check("prepared_transactions", "problem").await;
    let slots = app.assert_check("replication_slots", "warning").await;
    assert_says(&slots["summary"], "\"standby\" is not used");
    assert_says(&slots["advice"], "SELECT pg_drop_replication_slot('standby');");
    assert_eq!(app.get("/doctor").await.json()["status"], "problem");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_write_to_the_disk_is_a_problem() {
    let durability = App::start().await.assert_check("durability", "problem").await;
    assert_eq!(durability["details"], json!({"fsync": false, "full_page_writes": true, "synchronous_commit": "on"}));
    assert_says(&durability["advice"], "ALTER SYSTEM SET fsync = on;");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_whose_build_was_interrupted_is_a_problem() {
    let app = App::start().await;
    app.assert_check("indexes", "ok").await;
    app.claim("a", "w:1").await;
    app.claim("a", "w:2").await;
    // The response includes workers that were not stored before.
    app.get("/workers").await.expect(200);
    let mut conn = database::connection(&app.url).await;
    let build = "CREATE UNIQUE INDEX CONCURRENTLY broken ON waybill.workers (tags)";
    conn.batch_execute(build).await.expect_err("two workers have the same tags");
    // The error is sent before the build is undone.
    conn.batch_execute("SELECT 1").await.expect("the connection is usable again");
    let indexes = app.assert_check("indexes", "problem").await;
    assert_eq!(indexes["details"], json!({"invalid": ["broken"], "being_built": []}));
    assert_says(&indexes["advice"], "DROP INDEX CONCURRENTLY waybill.broken;");
    conn.batch_execute("DROP INDEX CONCURRENTLY waybill.broken").await.expect("the advice works");
    app.assert_check("indexes", "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_held_for_long_is_found() {
    let app = App::with_fixed_clock().await;
    let mut conn = database::connection(&app.url).await;
    conn.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.expect("a snapshot");
    app.assert_check("transactions", "ok").await;
    app.advance(400);
    let held = app.assert_check("transactions", "warning").await;
    assert_says(&held["summary"], "has been open for 6 min");
    app.advance(4_000);
    let held = app.assert_check("transactions", "problem").await;
    assert_eq!(held["details"]["open"][0]["state"], "idle in transaction");
    assert_says(&held["advice"], &format!("SELECT pg_terminate_backend({});", held["details"]["open"][0]["pid"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_that_are_missing_or_of_a_newer_version_are_found() {
    let app = App::start().await;
    app.assert_check("schema", "ok").await;
    database::execute(&app.url, "INSERT INTO waybill.__diesel_schema_migrations VALUES ('29991231000001')").await;
    let newer = app.assert_check("schema", "warning").await;
    assert_eq!(newer["details"], json!({"pending": [], "unknown": ["29991231000001"]}));
    database::execute(&app.url, "DELETE FROM waybill.__diesel_schema_migrations WHERE version = '20261117000001'")
        .await;
    let missing = app.assert_check("schema", "problem").await;
    assert_eq!(missing["details"]["pending"], json!(["20261117000001"]));
    assert_says(&missing["advice"], "waybill migrate");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_without_a_partition_is_found() {
    let app = App::start().await;
    let partitions = app.assert_check("partitions", "ok").await;
    let next_week = partitions["details"]["next_week"].as_str().expect("a name").to_owned();
    database::execute(&app.url, &format!("DROP TABLE waybill.{next_week}")).await;
    assert_says(&app.assert_check("partitions", "warning").await["summary"], &next_week);
    let this_week = partitions["details"]["this_week"].as_str().expect("a name").to_owned();
    database::execute(&app.url, &format!("DROP TABLE waybill.{this_week}")).await;
    assert_says(&app.assert_check("partitions", "problem").await["summary"], &this_week);
}

/// The database of tests has room for many locks and connections, so the server wants more.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_locks_and_connections_for_this_server_are_found() {
    let flags = vec!["--db-connections=1000".into()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let connections = app.assert_check("connections", "problem").await;
    assert_says(&connections["summary"], "this server may open 1002 connections");
    let weeks = "SELECT count(*) FROM generate_series(1, 70) week \
                 WHERE waybill.create_event_log_partition(current_date + 14 + week::int * 7)";
    assert_eq!(app.count(weeks).await, 70);
    let locks = app.assert_check("locks", "warning").await;
    assert_says(&locks["advice"], "ALTER SYSTEM SET max_locks_per_transaction = ");
    assert!(locks["details"]["partitions"].as_i64().is_some_and(|partitions| partitions >= 72), "{locks}");
}
