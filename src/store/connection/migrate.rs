//! Migrations: embedded in the binary, run under a lock.
//!
//! The migration tool takes no lock of its own, and servers that start together would trip
//! over each other; so whoever migrates holds an advisory lock while doing it.
//!
//! All of it is one transaction, lock and settings included: all migrations or none, and
//! nothing is left behind on a connection that a pooler hands to somebody else afterwards.

use diesel_async::{AsyncConnection, AsyncMigrationHarness, AsyncPgConnection, TransactionManager};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::error::Error;
use crate::store::connection::connect::open;

/// All migrations, as compiled in.
pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Any number that nobody else uses: the letters of the name.
const LOCK: i64 = 0x57_41_59_42_49_4c_4c;

/// The table that remembers what ran lives in our schema, since the database may be an
/// application's own, with migrations of its own.
const SETUP: &str = "SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS waybill; \
     SET LOCAL search_path = waybill, pg_catalog";

type Transactions = <AsyncPgConnection as AsyncConnection>::TransactionManager;

/// Brings the schema up to date; answers the names of the migrations that ran.
/// Needs the multi-threaded runtime.
pub async fn migrate(url: &str) -> Result<Vec<String>, Error> {
    run(locked(url).await?, |harness| {
        let versions = harness.run_pending_migrations(MIGRATIONS)?;
        Ok(versions.iter().map(ToString::to_string).collect())
    })
    .await
}

/// Takes every migration back; for tests and for leaving.
pub async fn revert_all(url: &str) -> Result<(), Error> {
    run(locked(url).await?, |harness| harness.revert_all_migrations(MIGRATIONS).map(drop)).await
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

/// A connection in a transaction that nobody else can be in.
async fn locked(url: &str) -> Result<AsyncPgConnection, Error> {
    let mut conn = open(url, "").await?.connection;
    Transactions::begin_transaction(&mut conn).await?;
    conn.batch_execute("SET LOCAL lock_timeout = '60s'").await?;
    diesel::sql_query("SELECT pg_advisory_xact_lock($1)")
        .bind::<diesel::sql_types::BigInt, _>(LOCK)
        .execute(&mut conn)
        .await?;
    conn.batch_execute(SETUP).await?;
    Ok(conn)
}

type Harness = AsyncMigrationHarness<AsyncPgConnection>;
type HarnessResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn run<T, F>(conn: AsyncPgConnection, work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce(&mut Harness) -> HarnessResult<T> + Send + 'static,
{
    let worked = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncMigrationHarness::new(conn);
        work(&mut harness).map(|outcome| (outcome, harness.into_inner()))
    });
    let (outcome, mut conn) = worked
        .await
        .map_err(|error| Error::Internal(error.to_string()))?
        .map_err(|error| Error::Internal(format!("a migration failed: {error}")))?;
    Transactions::commit_transaction(&mut conn).await?;
    Ok(outcome)
}
