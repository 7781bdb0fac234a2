//! SQL of backups and restores: the snapshot that a backup is taken from, the statements around a restore, and the mark
//! of a restore that has not finished.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Bool, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use crate::error::Error;
use crate::store::connection::connect::open;
use crate::store::connection::migrate;
use crate::store::connection::whole_result::LoadOne;

/// The schema of Waybill, which is all that is backed up.
pub(crate) const SCHEMA: &str = "waybill";

/// The name under which the programs of a backup connect.
pub(crate) const APPLICATION: &str = "waybill backup";

/// A schema that exists while a restore runs, and after one that was killed. Servers do not start on it.
const MARK: &str = "waybill_restoring";

/// The session may take as long as the data needs, and holds a snapshot meanwhile.
const UNLIMITED: &str =
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '60s'";

/// A snapshot of the database, which lasts as long as this value.
pub(crate) struct Snapshot {
    _conn: AsyncPgConnection,
    /// The name by which other sessions can use it.
    pub name: String,
    pub state: DatabaseState,
    /// The number of rows of every table.
    pub tables: BTreeMap<String, i64>,
}

/// What a manifest says about the database.
#[derive(Debug, QueryableByName)]
pub(crate) struct DatabaseState {
    #[diesel(sql_type = Text)]
    pub postgresql: String,
    #[diesel(sql_type = Timestamptz)]
    pub taken_at: DateTime<Utc>,
    #[diesel(sql_type = Text)]
    pub epoch: String,
    #[diesel(sql_type = BigInt)]
    pub last_id: i64,
    #[diesel(sql_type = Text)]
    pub schema: String,
}

#[derive(QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Text)]
    text: String,
}

#[derive(QueryableByName)]
struct NumberRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct FlagRow {
    #[diesel(sql_type = Bool)]
    flag: bool,
}

/// Takes a snapshot and counts the rows in it.
pub(crate) async fn take_snapshot(url: &str) -> Result<Snapshot, Error> {
    let mut conn = open(url, UNLIMITED).await?.connection;
    let exists = "SELECT to_regclass('waybill.histories') IS NOT NULL AS flag";
    if !sql_query(exists).load_one::<FlagRow>(&mut conn).await?.flag {
        return Err(Error::Internal("there is no data of Waybill in this database".into()));
    }
    conn.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let name: TextRow = sql_query("SELECT pg_export_snapshot() AS text").load_one(&mut conn).await?;
    // `last_value` is not part of the snapshot: it may be newer, which does no harm here.
    let state = "SELECT split_part(current_setting('server_version'), ' ', 1) AS postgresql, now() AS taken_at, \
         (SELECT epoch FROM waybill.histories ORDER BY first_id DESC LIMIT 1) AS epoch, \
         (SELECT last_value FROM waybill.ids) AS last_id, \
         (SELECT max(version)::text FROM waybill.__diesel_schema_migrations) AS schema";
    let state = sql_query(state).load_one(&mut conn).await?;
    let mut tables = BTreeMap::new();
    for TextRow { text: table } in list_tables(&mut conn).await? {
        let count = sql_query(format!("SELECT count(*) AS number FROM waybill.{}", quoted(&table)));
        tables.insert(table, count.load_one::<NumberRow>(&mut conn).await?.number);
    }
    Ok(Snapshot { _conn: conn, name: name.text, state, tables })
}

/// Returns the tables of the schema. Partitions belong to their table.
async fn list_tables(conn: &mut AsyncPgConnection) -> Result<Vec<TextRow>, Error> {
    let tables = "SELECT relname::text AS text FROM pg_class WHERE relnamespace = 'waybill'::regnamespace \
         AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relname";
    Ok(sql_query(tables).load(conn).await?)
}

/// Counts the rows that running backups have copied, from a connection of its own: within the transaction of the
/// snapshot these numbers would stand still.
pub(crate) struct CopyWatch {
    conn: AsyncPgConnection,
    /// The highest number seen of each table; a table that is done is no longer reported.
    rows: BTreeMap<i64, i64>,
}

impl CopyWatch {
    pub(crate) async fn open(url: &str) -> Result<Self, Error> {
        Ok(Self { conn: open(url, "SET statement_timeout = '5s'").await?.connection, rows: BTreeMap::new() })
    }

    /// Returns the number of rows that were copied so far. Small tables may be missed.
    pub(crate) async fn count_rows(&mut self) -> Result<i64, Error> {
        #[derive(QueryableByName)]
        struct Copying {
            #[diesel(sql_type = BigInt)]
            table_id: i64,
            #[diesel(sql_type = BigInt)]
            rows: i64,
        }
        let copying = "SELECT p.relid::bigint AS table_id, p.tuples_processed AS rows FROM pg_stat_progress_copy p \
             JOIN pg_stat_activity a ON a.pid = p.pid WHERE p.datname = current_database() AND a.application_name = $1";
        let copying = sql_query(copying).bind::<Text, _>(APPLICATION);
        for Copying { table_id, rows } in copying.load(&mut self.conn).await? {
            self.rows.insert(table_id, rows);
        }
        Ok(self.rows.values().sum())
    }
}

/// The state of a database into which a backup is to be restored.
#[derive(Debug, QueryableByName)]
pub(crate) struct RestoreTarget {
    #[diesel(sql_type = Text)]
    pub postgresql: String,
    /// Whether there is a schema `waybill`.
    #[diesel(sql_type = Bool)]
    pub is_taken: bool,
    /// The connections of Waybill's servers.
    #[diesel(sql_type = BigInt)]
    pub servers: i64,
}

/// Returns the statement that names a connection. Under the name that all connections begin with, one that is about to end
/// would count as that of a server.
fn own_name() -> String {
    format!("SET application_name = '{APPLICATION}'")
}

pub(crate) async fn read_restore_target(url: &str) -> Result<RestoreTarget, Error> {
    let mut conn = open(url, &own_name()).await?.connection;
    let target = "SELECT split_part(current_setting('server_version'), ' ', 1) AS postgresql, \
         to_regnamespace('waybill') IS NOT NULL AS is_taken, \
         (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'waybill' \
             AND pid <> pg_backend_pid()) AS servers";
    Ok(sql_query(target).load_one(&mut conn).await?)
}

/// Keeps other restores away from a database as long as this value lives. Otherwise one that fails would remove the mark
/// of the one that runs.
pub(crate) struct RestoreLock {
    _conn: AsyncPgConnection,
}

/// Returns `None` if another restore into this database runs.
///
/// A transaction holds the lock: it ends with the connection also behind a pooler that lends connections by transaction.
pub(crate) async fn lock_restore(url: &str) -> Result<Option<RestoreLock>, Error> {
    let mut conn = open(url, &own_name()).await?.connection;
    conn.batch_execute("SET idle_in_transaction_session_timeout = 0; BEGIN").await?;
    let take = "SELECT pg_try_advisory_xact_lock(hashtextextended('waybill.restore', 0)) AS flag";
    let is_ours = sql_query(take).load_one::<FlagRow>(&mut conn).await?.flag;
    // As plain text, it ends the snapshot of the last statement, for which index builds would wait.
    conn.batch_execute("SELECT").await?;
    Ok(is_ours.then_some(RestoreLock { _conn: conn }))
}

/// Marks the database, so that no server starts on it until the restore has ended.
pub(crate) async fn mark_restore(url: &str) -> Result<(), Error> {
    let mut conn = open(url, &own_name()).await?.connection;
    let quiet = "SET client_min_messages = warning";
    Ok(conn.batch_execute(&format!("{quiet}; CREATE SCHEMA IF NOT EXISTS {MARK}")).await?)
}

/// Removes the mark after a restore that has failed and changed nothing.
pub(crate) async fn unmark_restore(url: &str) -> Result<(), Error> {
    let mut conn = open(url, &own_name()).await?.connection;
    let quiet = "SET client_min_messages = warning";
    Ok(conn.batch_execute(&format!("{quiet}; DROP SCHEMA IF EXISTS {MARK}")).await?)
}

/// Returns an error if a restore into this database has not finished.
pub(crate) async fn refuse_unfinished_restore(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    let is_marked = format!("SELECT to_regnamespace('{MARK}') IS NOT NULL AS flag");
    match sql_query(is_marked).load_one::<FlagRow>(conn).await?.flag {
        false => Ok(()),
        true => Err(Error::Internal(format!(
            "a restore into this database runs, or was interrupted. Run `waybill restore` again. To use the database as \
             it was before instead, run `DROP SCHEMA {MARK}` in it"
        ))),
    }
}

/// Returns the statements before those of a backup. `replaces`: what is there is dropped, in the same transaction.
pub(crate) fn before_restore(replaces: bool) -> String {
    let drop = if replaces { "DROP SCHEMA IF EXISTS waybill CASCADE;\n" } else { "" };
    format!("SET client_min_messages = warning;\nBEGIN;\nSET LOCAL lock_timeout = '10s';\n{drop}")
}

/// Ends the sessions of a backup: whoever has logged out since, or whose browser was lost, would be logged in again. Of an
/// older schema there are none.
const END_SESSIONS: &str = "DO $waybill$ BEGIN\n\
     IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('waybill.api_key_secrets') \
         AND attname = 'is_session' AND NOT attisdropped) THEN\n\
     DELETE FROM waybill.api_key_secrets WHERE is_session;\n\
     END IF; END $waybill$;";

/// Returns the statements after those of a backup: they compare the number of rows with that of the backup, end its
/// sessions, begin a new history, and commit.
pub(crate) fn after_restore(tables: &BTreeMap<String, i64>) -> String {
    let counts: Vec<String> = tables
        .iter()
        .map(|(table, rows)| {
            let name = table.replace('\'', "''");
            let quoted = quoted(table);
            format!("SELECT '{name}' AS name, {rows} AS wanted, (SELECT count(*) FROM waybill.{quoted}) AS restored")
        })
        .collect();
    let counts = counts.join("\nUNION ALL ");
    format!(
        "\nDO $waybill$ DECLARE wrong record; BEGIN\n\
         FOR wrong IN SELECT * FROM (\n{counts}\n) c WHERE wanted <> restored LOOP\n\
         RAISE EXCEPTION 'the backup has % rows of %, and % were restored', wrong.wanted, wrong.name, wrong.restored;\n\
         END LOOP; END $waybill$;\n\
         {END_SESSIONS}\n\
         SELECT waybill.begin_history(true);\n\
         DROP SCHEMA IF EXISTS {MARK};\n\
         COMMIT;\n"
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Reads statistics for the planner, which a backup does not contain. Returns the new epoch and its first id.
pub(crate) async fn finish_restore(url: &str) -> Result<(String, i64), Error> {
    #[derive(QueryableByName)]
    struct Begun {
        #[diesel(sql_type = Text)]
        epoch: String,
        #[diesel(sql_type = BigInt)]
        first_id: i64,
    }
    let mut conn = open(url, UNLIMITED).await?.connection;
    conn.batch_execute("ANALYZE").await?;
    let present = "SELECT epoch, first_id FROM waybill.histories ORDER BY first_id DESC LIMIT 1";
    let begun: Begun = sql_query(present).load_one(&mut conn).await?;
    Ok((begun.epoch, begun.first_id))
}

/// Returns whether this program knows the schema of a backup: its last migration, or an older one.
pub(crate) fn knows_schema(version: &str) -> Result<bool, Error> {
    Ok(migrate::versions()?.iter().any(|known| known == version))
}
