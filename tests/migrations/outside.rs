//! Migrations that run outside a transaction, such as those that build an index concurrently.

use std::time::Duration;

use diesel_migrations::FileBasedMigrations;
use serde_json::json;
use waybill::store::connection::migrate::migrate_from;

use crate::support::locks::HeldRow;
use crate::support::work::W1;
use crate::support::{App, database};

/// Returns migrations that a later release may have.
pub(super) fn later_migrations() -> FileBasedMigrations {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/migrations/rehearsal");
    FileBasedMigrations::from_path(folder).expect("a folder of migrations")
}

const VALID: &str =
    "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('waybill.events_built_later') AND indisvalid";
const BUILDING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND wait_event_type = 'Lock' AND query LIKE '%CREATE INDEX CONCURRENTLY%'";
const APPLIED: &str = "SELECT count(*) FROM waybill.__diesel_schema_migrations WHERE version LIKE '2030%'";

/// A transaction that has written to the table before, and that an index build waits for.
async fn open_writer(app: &App) -> HeldRow {
    HeldRow::with_uncommitted(app, "INSERT INTO waybill.events (title, tags) VALUES ('not committed', 'a')").await
}

async fn until_building(app: &App) {
    let waiting = async { while app.count(BUILDING).await == 0 {} };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the build waits for the open transaction");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_published_and_worked_on_while_an_index_is_built() {
    let app = App::start().await;
    let writer = open_writer(&app).await;
    let url = app.url.clone();
    let migrating = tokio::spawn(async move { migrate_from(&url, later_migrations).await });
    until_building(&app).await;
    let id = app.publish(json!({"title": "t", "tags": "a"})).await;
    app.claim("a", W1).await.expect("an event");
    app.complete(id, W1).await.expect(200);
    assert_eq!(app.count(VALID).await, 0, "the build still waits for the open transaction");
    writer.unlock().await;
    assert_eq!(migrating.await.expect("no panic").expect("migrated").len(), 3);
    assert_eq!(app.count(VALID).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_build_of_an_index_is_repeated() {
    let app = App::start().await;
    let writer = open_writer(&app).await;
    let url = app.url.clone();
    let migrating = tokio::spawn(async move { migrate_from(&url, later_migrations).await });
    until_building(&app).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
                AND query LIKE '%CREATE INDEX CONCURRENTLY%' AND pid <> pg_backend_pid()";
    database::execute(&app.url, kill).await;
    migrating.await.expect("no panic").expect_err("the build was interrupted");
    writer.unlock().await;
    assert_eq!((app.count(APPLIED).await, app.count(VALID).await), (0, 0));
    let ran = migrate_from(&app.url, later_migrations).await.expect("migrated");
    assert_eq!((ran.len(), app.count(APPLIED).await, app.count(VALID).await), (3, 3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_was_built_and_not_recorded_is_recorded_by_the_next_migration() {
    let url = database::migrated().await;
    migrate_from(&url, later_migrations).await.expect("migrated");
    let forget = "DELETE FROM waybill.__diesel_schema_migrations WHERE version = '20300101000001'";
    database::execute(&url, forget).await;
    assert_eq!(migrate_from(&url, later_migrations).await.expect("migrated"), ["20300101000001"]);
    assert_eq!(database::count(&url, VALID).await, 1);
}

/// Neither the server that migrates nor one that waits for it may hold back the build of an index.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_for_migrations_does_not_hold_back_an_index() {
    let app = App::start().await;
    let writer = open_writer(&app).await;
    let migrate_there = || {
        let url = app.url.clone();
        tokio::spawn(async move { migrate_from(&url, later_migrations).await })
    };
    let building = migrate_there();
    until_building(&app).await;
    let waiting = migrate_there();
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND state = 'idle in transaction' AND backend_xmin IS NULL AND application_name LIKE '%'";
    let both = async { while app.count(idle).await < 2 {} };
    tokio::time::timeout(Duration::from_secs(30), both).await.expect("both are between two statements");
    writer.unlock().await;
    assert_eq!(building.await.expect("no panic").expect("migrated").len(), 3);
    assert_eq!(waiting.await.expect("no panic").expect("nothing is left to do").len(), 0);
}
