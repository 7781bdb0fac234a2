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
use crate::store::statement::statement;

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

/// Moves the oldest week of the default partition to a partition of its own, if it ended more than `age_seconds` ago.
/// Returns whether anything was moved.
pub(crate) fn move_old_log_lines(
    conn: &mut BlockingConnection,
    now: Option<DateTime<Utc>>,
    age_seconds: f64,
) -> QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Oldest {
        #[diesel(sql_type = Nullable<Date>)]
        day: Option<NaiveDate>,
    }
    #[derive(QueryableByName)]
    struct Created {
        #[diesel(sql_type = Bool)]
        created: bool,
    }
    let query = statement!("find_oldest_default_log_day").query().bind::<Nullable<Timestamptz>, _>(now);
    let Some(day) = query.bind::<Double, _>(age_seconds).get_result::<Oldest>(conn)?.day else { return Ok(false) };
    let create = statement!("create_log_partition").query().bind::<Date, _>(day);
    Ok(create.bind::<Text, _>(LOCK_TIMEOUT).get_result::<Created>(conn)?.created)
}

/// Detaches a partition from the event log. Fails if others use the log for longer than the time that they may be
/// held up.
pub(crate) fn detach_log_partition(conn: &mut BlockingConnection, name: &str) -> QueryResult<()> {
    // Two statements that are sent together are one transaction.
    let detach = format!("ALTER TABLE waybill.event_log DETACH PARTITION waybill.{name}");
    conn.batch_execute(&format!("SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {detach}"))
}

/// Drops a detached partition.
pub(crate) fn drop_log_partition(conn: &mut BlockingConnection, name: &str) -> QueryResult<()> {
    conn.batch_execute(&format!("DROP TABLE IF EXISTS waybill.{name}"))
}

/// The number of entries of a detached partition, and of its blocks.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct LogPartitionSize {
    #[diesel(sql_type = BigInt)]
    pub lines: i64,
    #[diesel(sql_type = BigInt)]
    pub blocks: i64,
}

pub(crate) fn measure_log_partition(conn: &mut BlockingConnection, name: &str) -> QueryResult<LogPartitionSize> {
    sql_query(format!(
        "SELECT count(*) AS lines, \
                pg_relation_size('waybill.{name}') / current_setting('block_size')::bigint AS blocks \
         FROM waybill.{name}"
    ))
    .get_result(conn)
}

/// Reads the entries in the blocks from `begin` to `end`, exclusive, as one JSON object per line. Reading in pieces
/// holds no snapshot for longer than a moment, which would keep dead rows of all tables from being removed.
pub(crate) fn read_log_lines(conn: &mut BlockingConnection, name: &str, begin: i64, end: i64) -> QueryResult<String> {
    #[derive(QueryableByName)]
    struct Lines {
        #[diesel(sql_type = Text)]
        text: String,
    }
    let lines: Lines = sql_query(format!(
        "SELECT coalesce(string_agg(row_to_json(l) || E'\\n', '' ORDER BY id), '') AS text \
         FROM waybill.{name} l WHERE ctid >= '({begin},0)' AND ctid < '({end},0)'"
    ))
    .get_result(conn)?;
    Ok(lines.text)
}
