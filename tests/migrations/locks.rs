//! Migrations against sessions that hold or want the same locks.

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use diesel_migrations::FileBasedMigrations;
use tokio::task::JoinHandle;
use waybill::store::connection::migrate::migrate_from;

use crate::support::{database, until, within_patience};

/// Returns migrations that replace a view and lock a table.
fn replacing_migrations() -> FileBasedMigrations {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/migrations/views");
    FileBasedMigrations::from_path(folder).expect("a folder of migrations")
}

const TRIES: &str = "SELECT last_value FROM public.tries";

/// Returns a database with what the migrations need.
async fn prepared() -> String {
    let url = database::migrated().await;
    database::execute(&url, "CREATE SEQUENCE public.tries; CREATE TABLE public.theirs (id int)").await;
    url
}

fn migrate(url: &str) -> JoinHandle<Vec<String>> {
    let url = url.to_owned();
    tokio::spawn(async move { migrate_from(&url, replacing_migrations).await.expect("migrated") })
}

/// Returns a session whose transaction has done this.
async fn open_transaction(url: &str, sql: &str) -> AsyncPgConnection {
    let mut session = database::connection(url).await;
    session.batch_execute(&format!("BEGIN; {sql}")).await.expect(sql);
    session
}

/// Waits until a session waits for a lock with this statement.
async fn until_waiting(url: &str, statement: &str) {
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
         AND query LIKE '%{statement}%' AND pid <> pg_backend_pid()"
    );
    until("a session waits", async || database::count(url, &waiting).await == 1).await;
}

/// A reader locks the view, and then its table. The migration locks them in the same order.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_view_waits_for_the_migration_that_replaces_it() {
    let url = prepared().await;
    let mut holder = open_transaction(&url, "SELECT pg_advisory_xact_lock(4711)").await;
    let migrating = migrate(&url);
    until_waiting(&url, "pg_advisory_xact_lock").await;
    let of_reader = url.clone();
    let reading =
        tokio::spawn(async move { database::count(&of_reader, "SELECT count(*) FROM waybill.event_trails").await });
    until_waiting(&url, "SELECT count(*) FROM waybill.event_trails").await;
    holder.batch_execute("COMMIT").await.expect("the end");
    assert_eq!(within_patience(migrating).await.expect("no panic").len(), 2);
    assert_eq!(within_patience(reading).await.expect("the reader is served"), 0);
    assert_eq!(database::count(&url, TRIES).await, 1, "the reader is not in the way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_meets_a_lock_is_tried_again() {
    let url = prepared().await;
    let mut holder = open_transaction(&url, "LOCK TABLE public.theirs IN ACCESS SHARE MODE").await;
    let migrating = migrate(&url);
    until("it has been refused", async || migrating.is_finished() || database::count(&url, TRIES).await > 1).await;
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.event_trails").await, 0, "readers are served");
    holder.batch_execute("COMMIT").await.expect("the end");
    assert_eq!(within_patience(migrating).await.expect("no panic").len(), 2);
}
