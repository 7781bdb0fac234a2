//! Partitions of the event log: creates those of the next days, and counts the locks that a read takes.
//!
//! These statements run on their own blocking connection, from a plain thread.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{QueryableByName, RunQueryDsl};
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Timestamptz};
use diesel_async::AsyncPgConnection;

use crate::store::connection::blocking::BlockingConnection;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;

#[derive(QueryableByName)]
struct Created {
    #[diesel(sql_type = Bool)]
    created: bool,
}

/// Creates the partitions of today and of the next `days_ahead` days. Returns the number of new ones.
pub(crate) fn create_log_partitions(conn: &mut BlockingConnection, days_ahead: i32) -> QueryResult<usize> {
    let rows: Vec<Created> = statement!("create_log_partitions").query().bind::<Integer, _>(days_ahead).load(conn)?;
    Ok(rows.iter().filter(|row| row.created).count())
}

/// The number of locks that a read of the event log takes, and the number that the database provides.
///
/// A statement that reads the event log locks all of its partitions and all of their indexes. If
/// concurrent reads need more locks than the database provides, they fail, and so do settlements that
/// look up an earlier entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub(crate) struct LockBudget {
    /// The number of partitions of the event log.
    #[diesel(sql_type = BigInt)]
    pub partitions: i64,
    /// The number of partitions and of their indexes.
    #[diesel(sql_type = BigInt)]
    pub locks_per_read: i64,
    /// The number of locks that the database guarantees. It has some more, on which nothing should rely.
    #[diesel(sql_type = BigInt)]
    pub capacity: i64,
    /// The setting `max_locks_per_transaction`.
    #[diesel(sql_type = BigInt)]
    pub per_transaction: i64,
}

impl LockBudget {
    /// Returns the `max_locks_per_transaction` that `reads` concurrent reads need, or `None` if the current
    /// setting is sufficient.
    pub(crate) fn needed_for(&self, reads: usize) -> Option<i64> {
        let needed = self.locks_per_read * reads as i64;
        if needed <= self.capacity {
            return None;
        }
        let transactions = (self.capacity / self.per_transaction).max(1);
        Some((needed as u64).div_ceil(transactions as u64) as i64)
    }
}

/// Reads the number of locks that the event log needs and that the database provides.
pub(crate) fn read_lock_budget(conn: &mut BlockingConnection) -> QueryResult<LockBudget> {
    statement!("read_lock_budget").query().load_one_blocking(conn)
}

/// Reads the same on a connection of the pool.
pub(crate) async fn read_lock_budget_pooled(conn: &mut AsyncPgConnection) -> QueryResult<LockBudget> {
    statement!("read_lock_budget").query().load_one(conn).await
}

/// The maximum number of ranges of 16 blocks per partition that one call summarizes.
const MAX_RANGES: i64 = 64;

#[derive(QueryableByName)]
struct Summarized {
    #[diesel(sql_type = BigInt)]
    summaries: i64,
}

/// Adds summaries of the newest blocks to the block range index. Returns the number of new summaries.
pub(crate) async fn summarize_log(conn: &mut AsyncPgConnection, now: Option<DateTime<Utc>>) -> QueryResult<i64> {
    let query = statement!("summarize_log").query();
    let query = query.bind::<Nullable<Timestamptz>, _>(now).bind::<BigInt, _>(MAX_RANGES).cached();
    let row: Summarized = query.load_one(conn).await?;
    Ok(row.summaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_locks_are_needed_if_concurrent_reads_exceed_the_capacity() {
        let budget = LockBudget { partitions: 1095, locks_per_read: 3288, capacity: 64 * 64, per_transaction: 64 };
        assert_eq!(budget.needed_for(1), None);
        assert_eq!(budget.needed_for(2), Some(103));
        assert_eq!(budget.needed_for(8), Some(411));
        let raised = LockBudget { capacity: 411 * 64, per_transaction: 411, ..budget };
        assert_eq!(raised.needed_for(8), None);
    }
}
