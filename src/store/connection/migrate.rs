//! Runs the migrations, which are embedded in the binary, under a lock.
//!
//! The migration library takes no lock, so servers that start at the same time would run the same
//! migrations twice. An advisory lock prevents that.
//!
//! One transaction covers the lock, the settings and all migrations. Either all migrations are applied
//! or none, and no setting stays on a connection that a pooler later gives to another client.

use diesel_async::{AsyncConnection, AsyncMigrationHarness, AsyncPgConnection, TransactionManager};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::error::Error;
use crate::store::connection::connect::open;

/// All migrations of this binary.
pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// The key of the advisory lock: `WAYBILL` in ASCII, which other applications are unlikely to use.
const LOCK: i64 = 0x57_41_59_42_49_4c_4c;

/// Puts the table of applied migrations into our schema, since the database may also belong to an
/// application with its own migrations.
const SETUP: &str = "SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS waybill; \
     SET LOCAL search_path = waybill, pg_catalog";

type Transactions = <AsyncPgConnection as AsyncConnection>::TransactionManager;

/// Applies all pending migrations and returns their names. Needs the multi-threaded runtime.
pub async fn migrate(url: &str) -> Result<Vec<String>, Error> {
    run(begin_locked(url).await?, |harness| {
        let versions = harness.run_pending_migrations(MIGRATIONS)?;
        Ok(versions.iter().map(ToString::to_string).collect())
    })
    .await
}

/// Reverts every migration, for tests and for uninstalling.
pub async fn revert_all(url: &str) -> Result<(), Error> {
    run(begin_locked(url).await?, |harness| harness.revert_all_migrations(MIGRATIONS).map(drop)).await
}

/// Returns the number of migrations that this binary has and the database has not applied.
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

/// Opens a connection, begins a transaction and takes the lock of migrations.
async fn begin_locked(url: &str) -> Result<AsyncPgConnection, Error> {
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
    let task = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncMigrationHarness::new(conn);
        work(&mut harness).map(|outcome| (outcome, harness.into_inner()))
    });
    let (outcome, mut conn) = task
        .await
        .map_err(|error| Error::Internal(error.to_string()))?
        .map_err(|error| Error::Internal(format!("a migration failed: {error}")))?;
    Transactions::commit_transaction(&mut conn).await?;
    Ok(outcome)
}
