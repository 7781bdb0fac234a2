//! Migrations: embedded in the binary, run under a lock.
//!
//! The migration tool takes no lock of its own, and servers that start together would trip
//! over each other; so whoever migrates holds an advisory lock while doing it.

use diesel_async::{AsyncMigrationHarness, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use super::connect::connect;
use crate::error::Error;

/// All migrations, as compiled in.
pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Any number that nobody else uses: the letters of the name.
const LOCK: i64 = 0x57_41_59_42_49_4c_4c;

/// The table that remembers what ran lives in our schema, since the database may be an
/// application's own, with migrations of its own.
const SETUP: &str =
    "SET client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS waybill; SET search_path = waybill, pg_catalog";

/// Brings the schema up to date; answers the names of the migrations that ran.
/// Needs the multi-threaded runtime.
pub async fn migrate(url: &str) -> Result<Vec<String>, Error> {
    let mut conn = locked(url).await?;
    conn.batch_execute(SETUP).await?;
    run(conn, |harness| {
        let versions = harness.run_pending_migrations(MIGRATIONS)?;
        Ok(versions.iter().map(ToString::to_string).collect())
    })
    .await
}

/// Takes every migration back; for tests and for leaving.
pub async fn revert_all(url: &str) -> Result<(), Error> {
    let mut conn = locked(url).await?;
    conn.batch_execute(SETUP).await?;
    run(conn, |harness| harness.revert_all_migrations(MIGRATIONS).map(drop)).await
}

/// How many migrations this binary knows that the database has not seen.
pub async fn pending(conn: &mut AsyncPgConnection) -> Result<usize, Error> {
    use diesel::migration::{Migration, MigrationSource};
    #[derive(diesel::prelude::QueryableByName)]
    struct Version {
        #[diesel(sql_type = diesel::sql_types::Text)]
        version: String,
    }
    let known: Vec<Box<dyn Migration<diesel::pg::Pg>>> =
        MIGRATIONS.migrations().map_err(|error| Error::Internal(error.to_string()))?;
    let applied: Vec<Version> =
        diesel::sql_query("SELECT version::text AS version FROM waybill.__diesel_schema_migrations").load(conn).await?;
    let is_applied = |name: &str| applied.iter().any(|row| row.version == name);
    Ok(known.iter().filter(|m| !is_applied(&m.name().version().to_string())).count())
}

async fn locked(url: &str) -> Result<AsyncPgConnection, Error> {
    let mut conn =
        connect(url, "SET lock_timeout = '60s'").await.map_err(|error| Error::unavailable(error.to_string()))?;
    // Held until the connection closes.
    diesel::sql_query("SELECT pg_advisory_lock($1)")
        .bind::<diesel::sql_types::BigInt, _>(LOCK)
        .execute(&mut conn)
        .await?;
    Ok(conn)
}

type Harness = AsyncMigrationHarness<AsyncPgConnection>;
type HarnessResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn run<T, F>(conn: AsyncPgConnection, work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce(&mut Harness) -> HarnessResult<T> + Send + 'static,
{
    tokio::task::spawn_blocking(move || work(&mut AsyncMigrationHarness::new(conn)))
        .await
        .map_err(|error| Error::Internal(error.to_string()))?
        .map_err(|error| Error::Internal(format!("a migration failed: {error}")))
}
