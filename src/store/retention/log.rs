//! Old weeks of the event log: finds, detaches, reads and drops their partitions.
//!
//! A partition is detached before anything else: nobody can write to it any longer, so what is read from it is
//! all there is. A detached partition that a server left behind when it died is found like an attached one.
//! These statements run on their own blocking connection, from a plain thread.

use chrono::{DateTime, NaiveDate, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::{QueryableByName, RunQueryDsl};
use diesel::sql_types::{BigInt, Bool, Date, Double, Nullable, Text, Timestamptz};
use diesel::{QueryResult, sql_query};

use crate::store::connection::blocking::BlockingConnection;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;

/// The lock of whoever drops weeks.
const DROP_LOCK: &str = "hashtextextended('waybill.drop_log_partitions', 0)";

/// Locks the dropping of weeks, until the transaction of this connection ends. Returns `false` if another server has the
/// lock.
///
/// Archiving may take hours, and a snapshot that old would keep dead rows of all tables from being removed. A statement as
/// plain text ends the snapshot of the last one.
pub(crate) fn lock_dropping(conn: &mut BlockingConnection) -> QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Locked {
        #[diesel(sql_type = Bool)]
        is_ours: bool,
    }
    conn.batch_execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0")?;
    let locked: Locked =
        sql_query(format!("SELECT pg_try_advisory_xact_lock({DROP_LOCK}) AS is_ours")).load_one_blocking(conn)?;
    conn.batch_execute("SELECT")?;
    Ok(locked.is_ours)
}

/// Ends the transaction that holds the lock.
pub(crate) fn unlock_dropping(conn: &mut BlockingConnection) -> QueryResult<()> {
    conn.batch_execute("COMMIT")
}

/// The time to wait for the lock of the event log. Everybody else queues up behind the one who waits.
const LOCK_TIMEOUT: &str = "50ms";

/// A week of the event log whose end is longer ago than the retention.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct OldLogPartition {
    /// The name of the table, which consists of letters, digits and underscores.
    #[diesel(sql_type = Text)]
    pub name: String,
    /// Whether it is still part of the event log.
    #[diesel(sql_type = Bool)]
    pub is_attached: bool,
    /// The time since it could have been dropped.
    #[diesel(sql_type = Double)]
    pub lag_seconds: f64,
}

/// Returns the partitions that ended more than `age_seconds` ago, the oldest first.
pub(crate) fn find_old_log_partitions(
    conn: &mut BlockingConnection,
    now: Option<DateTime<Utc>>,
    age_seconds: f64,
) -> QueryResult<Vec<OldLogPartition>> {
    let query = statement!("find_old_log_partitions").query().bind::<Nullable<Timestamptz>, _>(now);
    query.bind::<Double, _>(age_seconds).load(conn)
}

/// Returns whether the default partition has lines of a week that ended more than `age_seconds` ago.
pub(crate) fn has_old_log_lines(
    conn: &mut BlockingConnection,
    now: Option<DateTime<Utc>>,
    age_seconds: f64,
) -> QueryResult<bool> {
    Ok(find_oldest_default_log_day(conn, now, age_seconds)?.is_some())
}

/// Moves the oldest week of the default partition to a partition of its own, if it ended more than `age_seconds` ago.
/// Returns whether anything was moved.
pub(crate) fn move_old_log_lines(
    conn: &mut BlockingConnection,
    now: Option<DateTime<Utc>>,
    age_seconds: f64,
) -> QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Created {
        #[diesel(sql_type = Bool)]
        created: bool,
    }
    let Some(day) = find_oldest_default_log_day(conn, now, age_seconds)? else { return Ok(false) };
    let create = statement!("create_log_partition").query().bind::<Date, _>(day);
    Ok(create.bind::<Text, _>(LOCK_TIMEOUT).load_one_blocking::<Created, _>(conn)?.created)
}

/// Returns the day of the oldest line in the default partition whose week ended more than `age_seconds` ago.
fn find_oldest_default_log_day(
    conn: &mut BlockingConnection,
    now: Option<DateTime<Utc>>,
    age_seconds: f64,
) -> QueryResult<Option<NaiveDate>> {
    #[derive(QueryableByName)]
    struct Oldest {
        #[diesel(sql_type = Nullable<Date>)]
        day: Option<NaiveDate>,
    }
    let query = statement!("find_oldest_default_log_day").query().bind::<Nullable<Timestamptz>, _>(now);
    Ok(query.bind::<Double, _>(age_seconds).load_one_blocking::<Oldest, _>(conn)?.day)
}

/// Detaches a partition from the event log. Fails if others use the log for longer than the time that they may be
/// held up.
pub(crate) fn detach_log_partition(conn: &mut BlockingConnection, name: &str) -> QueryResult<()> {
    // PostgreSQL cancels a vacuum of its own only for somebody who waits for more than a second. Nobody who reads or
    // writes waits behind this lock.
    let end_vacuum = format!("SET LOCAL lock_timeout = '3s'; LOCK TABLE waybill.{name} IN SHARE UPDATE EXCLUSIVE MODE");
    let detach = format!("ALTER TABLE waybill.event_log DETACH PARTITION waybill.{name}");
    // Statements that are sent together are one transaction.
    conn.batch_execute(&format!("{end_vacuum}; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {detach}"))
}

/// Drops a detached partition.
pub(crate) fn drop_log_partition(conn: &mut BlockingConnection, name: &str) -> QueryResult<()> {
    conn.batch_execute(&format!("DROP TABLE IF EXISTS waybill.{name}"))
}

/// Returns the number of blocks of a detached partition.
pub(crate) fn count_log_blocks(conn: &mut BlockingConnection, name: &str) -> QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Size {
        #[diesel(sql_type = BigInt)]
        blocks: i64,
    }
    let size: Size = sql_query(format!(
        "SELECT pg_relation_size('waybill.{name}') / current_setting('block_size')::bigint AS blocks"
    ))
    .load_one_blocking(conn)?;
    Ok(size.blocks)
}

/// A piece of a partition.
#[derive(Debug, QueryableByName)]
pub(crate) struct LogLines {
    /// One JSON object per line.
    #[diesel(sql_type = Text)]
    pub text: String,
    /// The number of entries.
    #[diesel(sql_type = BigInt)]
    pub count: i64,
}

/// Reads the entries in the blocks from `begin` to `end`, exclusive. Reading in pieces holds no snapshot for longer than
/// a moment, which would keep dead rows of all tables from being removed, and a week of any size stays within the limit
/// of a statement.
pub(crate) fn read_log_lines(conn: &mut BlockingConnection, name: &str, begin: i64, end: i64) -> QueryResult<LogLines> {
    sql_query(format!(
        "SELECT coalesce(string_agg(row_to_json(l) || E'\\n', '' ORDER BY id), '') AS text, count(*) AS count \
         FROM waybill.{name} l WHERE ctid >= '({begin},0)' AND ctid < '({end},0)'"
    ))
    .load_one_blocking(conn)
}
