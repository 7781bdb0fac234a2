//! Runs the migrations, which are embedded in the binary, under a lock.
//!
//! The migration library takes no lock, so servers that start at the same time would run the same
//! migrations twice. An advisory lock prevents that. A transaction of its own holds it, so that it covers
//! several other transactions, and ends with its connection even behind a proxy that pools transactions.
//!
//! Consecutive migrations share one transaction: either all of them are applied or none, and no setting
//! stays on a connection that a pooler later gives to another client. A migration whose `metadata.toml` says
//! `run_in_transaction = false` runs alone, as one statement, between two transactions:
//! `CREATE INDEX CONCURRENTLY IF NOT EXISTS` on a large table, which must not block writers. If it is interrupted, it
//! leaves an invalid index behind, which is dropped before the next attempt; if it ends before it is recorded, the
//! next attempt finds the index there.
//!
//! Servers of the previous version go on working meanwhile and afterwards: see `docs/contributing.md`.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::time::{Duration, Instant};

use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Bool, Text};

use diesel_async::{AsyncConnection, AsyncMigrationHarness, AsyncPgConnection, TransactionManager};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::domain::doctor::storage::SchemaFacts;
use crate::error::{Error, OutageKind};
use crate::store::backup::refuse_unfinished_restore;
use crate::store::connection::blocking::BlockingConnection;
use crate::store::connection::connect::open;
use crate::store::connection::whole_result::LoadOne;

/// All migrations of this binary.
pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// The key of the advisory lock: `WAYBILL` in ASCII, which other applications are unlikely to use.
const LOCK: i64 = 0x57_41_59_42_49_4c_4c;

/// Puts the table of applied migrations into our schema, since the database may also belong to an
/// application with its own migrations.
const SETUP: &str = "SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS waybill; \
     SET LOCAL search_path = waybill, pg_catalog; SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = 0";

/// Ends vacuums of our tables, which hold the same lock for as long as they take. PostgreSQL cancels a vacuum of its own
/// that somebody waits for, but only after its `deadlock_timeout` of a second. Neither readers nor writers wait behind
/// this lock.
const END_VACUUMS: &str = "SET LOCAL lock_timeout = '3s'; \
     DO $$ DECLARE names text := ( \
         SELECT string_agg(oid::regclass::text, ', ' ORDER BY oid) \
         FROM pg_class WHERE relnamespace = 'waybill'::regnamespace AND relkind IN ('r', 'p') \
         AND NOT relispartition AND relname <> '__diesel_schema_migrations'); \
     BEGIN IF names IS NOT NULL THEN EXECUTE 'LOCK TABLE ' || names || ' IN SHARE UPDATE EXCLUSIVE MODE'; END IF; \
     END $$; SET LOCAL lock_timeout = '100ms'";

/// Locks all our tables before migrations change them, and the views on them. Whoever waits for such a lock blocks all
/// others who want one, so a migration must not wait long behind a slow transaction: it waits at most a tenth of a second
/// for a lock and half a second for all of them, lets the others proceed, and is tried again. That is also before
/// PostgreSQL looks for deadlocks, so no statement of a server is ever refused because of one. The migrations themselves
/// then wait for nothing of ours.
///
/// Views come first, as in the statements that read them: a reader that held a view and waited for a table could be
/// waited for by a migration that holds the table and replaces the view.
const LOCK_TABLES: &str = "SET LOCAL statement_timeout = '500ms'; \
     DO $$ DECLARE names text := ( \
         SELECT string_agg(oid::regclass::text, ', ' ORDER BY relkind = 'v' DESC, oid) \
         FROM pg_class WHERE relnamespace = 'waybill'::regnamespace AND relkind IN ('r', 'p', 'v') \
         AND NOT relispartition AND relname <> '__diesel_schema_migrations'); \
     BEGIN IF names IS NOT NULL THEN EXECUTE 'LOCK TABLE ' || names || ' IN ACCESS EXCLUSIVE MODE'; END IF; END $$; \
     SET LOCAL statement_timeout = 0";

/// For how long it is tried to lock the tables.
const LOCK_TABLES_WITHIN: Duration = Duration::from_secs(120);

/// For how long a server waits while another one migrates. Longer than that one waits for its locks.
const LOCK_MIGRATIONS_WITHIN: Duration = Duration::from_secs(300);

/// The pause before a lock is tried again, in which others proceed.
const LOCK_PAUSE: Duration = Duration::from_millis(250);

/// How often migrations are tried again that met a lock of somebody else, such as that of a view on our tables. They hold
/// all our tables meanwhile.
const MIGRATION_RETRIES: u32 = 20;

/// Returns the statements that drop the indexes whose concurrent build was interrupted. Whoever holds the
/// lock of migrations is the only one to build indexes.
const DROP_INVALID_INDEXES: &str = "SELECT format('DROP INDEX CONCURRENTLY waybill.%I', c.relname) AS text \
     FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
     WHERE NOT i.indisvalid AND c.relkind = 'i' AND c.relnamespace = 'waybill'::regnamespace";

type Transactions = <AsyncPgConnection as AsyncConnection>::TransactionManager;
type Pending = Box<dyn Migration<Pg>>;

/// Applies all pending migrations and returns their names. Needs the multi-threaded runtime.
pub async fn migrate(url: &str) -> Result<Vec<String>, Error> {
    migrate_from(url, || MIGRATIONS).await
}

/// Applies all pending migrations of `source`. Public for the tests of migrations.
pub async fn migrate_from<S: MigrationSource<Pg> + 'static>(
    url: &str,
    source: fn() -> S,
) -> Result<Vec<String>, Error> {
    let mut holder = lock(url).await?;
    // Otherwise a server would make an empty schema where data is about to be.
    refuse_unfinished_restore(&mut holder).await?;
    end_snapshot(&mut holder).await?;
    let (mut names, mut retries) = (Vec::new(), 0);
    loop {
        // Without its connection, the lock is another server's.
        end_snapshot(&mut holder).await?;
        match run_next(url, source).await {
            Ok(ran) if ran.is_empty() => break,
            Ok(ran) => names.extend(ran),
            Err(error) if is_about_locks(&error) && retries < MIGRATION_RETRIES => {
                log::warn!("migrations are tried again: {error}");
                retries += 1;
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
    Transactions::commit_transaction(&mut holder).await?;
    Ok(names)
}

/// Returns whether something failed because of somebody else's locks, and may succeed when it is tried again.
fn is_about_locks(error: &Error) -> bool {
    error.is_outage(OutageKind::TooSlow) || error.is_conflict()
}

/// Reverts every migration, for tests and for uninstalling.
pub async fn revert_all(url: &str) -> Result<(), Error> {
    let mut holder = lock(url).await?;
    in_transaction(url, false, |harness| harness.revert_all_migrations(MIGRATIONS).map(drop)).await?;
    Ok(Transactions::commit_transaction(&mut holder).await?)
}

/// Returns a connection whose transaction holds the lock of migrations.
async fn lock(url: &str) -> Result<AsyncPgConnection, Error> {
    let mut conn = open(url, "").await?.connection;
    Transactions::begin_transaction(&mut conn).await?;
    conn.batch_execute("SET LOCAL idle_in_transaction_session_timeout = 0").await?;
    let take = format!("SELECT pg_try_advisory_xact_lock({LOCK}) AS is_so");
    let began = Instant::now();
    while began.elapsed() < LOCK_MIGRATIONS_WITHIN {
        let row: BoolRow = diesel::sql_query(&take).load_one(&mut conn).await?;
        end_snapshot(&mut conn).await?;
        if row.is_so {
            return Ok(conn);
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Err(Error::outage(OutageKind::TooSlow, "another server is migrating the schema"))
}

/// Ends the snapshot of the last statement. Neither who holds the lock of migrations nor who waits for it may keep one
/// open, since an index build waits for all older snapshots. So nobody waits inside a statement, and a statement as plain
/// text ends the last one.
async fn end_snapshot(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(conn.batch_execute("SELECT").await?)
}

/// The next step of migrating.
enum Step {
    /// Nothing is pending.
    Done,
    /// The next migrations can share a transaction.
    Together,
    /// The next migration must run outside a transaction.
    Alone(String),
}

/// Applies the next pending migrations: those that can share a transaction, or one that must run alone.
/// Returns their names.
async fn run_next<S: MigrationSource<Pg> + 'static>(url: &str, source: fn() -> S) -> Result<Vec<String>, Error> {
    let next = in_transaction(url, false, move |harness| {
        let pending: Vec<Pending> = harness.pending_migrations(source())?;
        Ok(pending.into_iter().next().map_or(Step::Done, |next| match next.metadata().run_in_transaction() {
            true => Step::Together,
            false => Step::Alone(next.name().version().to_string()),
        }))
    });
    match next.await? {
        Step::Done => Ok(Vec::new()),
        Step::Alone(version) => {
            run_alone(url, source, version.clone()).await?;
            Ok(vec![version])
        }
        Step::Together => in_transaction(url, true, move |harness| run_together(harness, source())).await,
    }
}

/// Runs the next migrations, up to the first that must run alone. Returns their names.
fn run_together<S: MigrationSource<Pg>>(harness: &mut Harness, source: S) -> Outcome<Vec<String>> {
    let pending: Vec<Pending> = harness.pending_migrations(source)?;
    let together = pending.iter().take_while(|migration| migration.metadata().run_in_transaction()).count();
    let versions = harness.run_migrations(&pending[..together])?;
    Ok(versions.iter().map(ToString::to_string).collect())
}

/// Runs a migration outside a transaction, and records it.
async fn run_alone<S: MigrationSource<Pg> + 'static>(
    url: &str,
    source: fn() -> S,
    version: String,
) -> Result<(), Error> {
    let mut conn = open(url, "").await?.connection;
    let invalid: Vec<TextRow> = diesel::sql_query(DROP_INVALID_INDEXES).load(&mut conn).await?;
    for TextRow { text } in invalid {
        conn.batch_execute(&text).await?;
    }
    let task = tokio::task::spawn_blocking(move || -> Outcome<(AsyncPgConnection, String)> {
        let mut conn = BlockingConnection::from(conn);
        let migrations: Vec<Pending> = source().migrations()?;
        let migration = migrations.iter().find(|migration| migration.name().version().to_string() == version);
        migration.ok_or("it has disappeared")?.run(&mut conn)?;
        Ok((conn.into_inner(), version))
    });
    let done = joined(task.await).map_err(|error| match error.is_outage(OutageKind::TooSlow) {
        // Only a setting of the role can have limited its time, and would do so at every try.
        true => Error::Internal(error.to_string()),
        false => error,
    });
    let (mut conn, version) = done?;
    diesel::sql_query("INSERT INTO waybill.__diesel_schema_migrations (version) VALUES ($1)")
        .bind::<Text, _>(&version)
        .execute(&mut conn)
        .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct BoolRow {
    #[diesel(sql_type = Bool)]
    is_so: bool,
}

#[derive(QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Text)]
    text: String,
}

/// Lets the database refuse rows that break a rule of the schema. Does nothing if it already does.
pub(crate) async fn enforce_rules(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(conn.batch_execute("SELECT waybill.enforce_rules(true)").await?)
}

/// Returns the number of migrations that this binary has and the database has not applied.
pub async fn pending(conn: &mut AsyncPgConnection) -> Result<usize, Error> {
    Ok(compare_schema(conn).await?.pending.len())
}

/// Returns the versions of all migrations of this binary.
pub(crate) fn versions() -> Result<Vec<String>, Error> {
    let known: Vec<Pending> = MIGRATIONS.migrations().map_err(|error| Error::Internal(error.to_string()))?;
    Ok(known.iter().map(|migration| migration.name().version().to_string()).collect())
}

/// Returns whether the database has a table of applied migrations.
pub(crate) async fn is_migrated(conn: &mut AsyncPgConnection) -> Result<bool, Error> {
    let sql = "SELECT to_regclass('waybill.__diesel_schema_migrations') IS NOT NULL AS is_so";
    let row: BoolRow = diesel::sql_query(sql).load_one(conn).await?;
    Ok(row.is_so)
}

/// Compares the migrations of this binary with those that the database has applied.
pub(crate) async fn compare_schema(conn: &mut AsyncPgConnection) -> Result<SchemaFacts, Error> {
    let known: BTreeSet<String> = versions()?.into_iter().collect();
    let applied: Vec<TextRow> =
        diesel::sql_query("SELECT version::text AS text FROM waybill.__diesel_schema_migrations").load(conn).await?;
    let applied: BTreeSet<String> = applied.into_iter().map(|row| row.text).collect();
    Ok(SchemaFacts {
        pending: known.difference(&applied).cloned().collect(),
        unknown: applied.difference(&known).cloned().collect(),
    })
}

type Harness = AsyncMigrationHarness<AsyncPgConnection>;
type Outcome<T> = Result<T, Box<dyn StdError + Send + Sync>>;

/// Runs `work` in a transaction of its own connection, with our schema as the place of new tables and, if `is_locked`, with
/// all our tables locked.
async fn in_transaction<T, F>(url: &str, is_locked: bool, work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce(&mut Harness) -> Outcome<T> + Send + 'static,
{
    let conn = if is_locked { begin_locked(url).await? } else { begin(url).await? };
    let task = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncMigrationHarness::new(conn);
        work(&mut harness).map(|outcome| (outcome, harness.into_inner()))
    });
    let (outcome, mut conn) = joined(task.await)?;
    Transactions::commit_transaction(&mut conn).await?;
    Ok(outcome)
}

async fn begin(url: &str) -> Result<AsyncPgConnection, Error> {
    let mut conn = open(url, "").await?.connection;
    Transactions::begin_transaction(&mut conn).await?;
    conn.batch_execute(SETUP).await?;
    Ok(conn)
}

/// Begins a transaction that has locked all our tables. Tries it again and again while others use them.
async fn begin_locked(url: &str) -> Result<AsyncPgConnection, Error> {
    let (began, mut is_noted) = (Instant::now(), false);
    loop {
        let mut conn = begin(url).await?;
        let locked = async {
            conn.batch_execute(END_VACUUMS).await?;
            conn.batch_execute(LOCK_TABLES).await
        };
        match locked.await.map_err(Error::from) {
            Ok(()) => return Ok(conn),
            Err(error) if !is_about_locks(&error) => return Err(error),
            // Not an error about locks any more: it is not tried again.
            Err(error) if began.elapsed() >= LOCK_TABLES_WITHIN => return Err(Error::Internal(error.to_string())),
            Err(error) if !is_noted => log::warn!("a migration waits for a lock: {error}"),
            Err(_) => {}
        }
        is_noted = true;
        // Ends the transaction, and with it the locks, before others get their time.
        Transactions::rollback_transaction(&mut conn).await?;
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

fn joined<T>(result: Result<Outcome<T>, tokio::task::JoinError>) -> Result<T, Error> {
    result.map_err(|error| Error::Internal(error.to_string()))?.map_err(failure)
}

/// Returns the error of a failed migration. If the database cannot be used, or somebody holds a lock, its kind says so.
fn failure(error: Box<dyn StdError + Send + Sync>) -> Error {
    let text = format!("a migration failed: {error}");
    let cause = error.downcast::<DieselError>().map_or_else(|error| cause_in(&error.to_string()), |error| *error);
    match Error::from(cause) {
        // An error without a SQLSTATE may be about the file of the migration.
        Error::Unavailable(outage) if outage.kind != OutageKind::Lost => Error::outage(outage.kind, text),
        _ => Error::Internal(text),
    }
}

/// Returns the database error of which the migration library shows nothing but the text. That begins with its SQLSTATE.
fn cause_in(text: &str) -> DieselError {
    let message = text.split_once(" with: ").map_or(text, |(_, message)| message).to_owned();
    DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message))
}
