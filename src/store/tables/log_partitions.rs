//! Partitions of the audit log: creates those of the next days, and counts the locks that reads take.
//!
//! These statements run on a blocking connection of their own, from a plain thread.

use diesel::prelude::{QueryableByName, RunQueryDsl};
use diesel::sql_types::{BigInt, Bool, Integer};
use diesel::{QueryResult, sql_query};

use crate::store::connection::blocking::BlockingConnection;

#[derive(QueryableByName)]
struct Created {
    #[diesel(sql_type = Bool)]
    created: bool,
}

/// Prepares the partitions of today and the next `days_ahead` days; answers how many were new.
pub fn create_log_partitions(conn: &mut BlockingConnection, days_ahead: i32) -> QueryResult<usize> {
    let rows: Vec<Created> = sql_query(
        "SELECT waybill.create_event_log_partition((now() AT TIME ZONE 'UTC')::date + ahead) AS created \
         FROM generate_series(0, $1) AS ahead",
    )
    .bind::<Integer, _>(days_ahead)
    .load(conn)?;
    Ok(rows.iter().filter(|row| row.created).count())
}

/// How many locks a read of a trail takes, and how many the database has room for.
///
/// A statement that names the event log locks all of its partitions and all of their indexes. If
/// reads at the same time need more locks than there is room for, they fail, and so do
/// settlements that look up what is on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct LockBudget {
    /// Partitions of the event log.
    #[diesel(sql_type = BigInt)]
    pub partitions: i64,
    /// Partitions and their indexes.
    #[diesel(sql_type = BigInt)]
    pub locks_per_read: i64,
    /// Locks in all. The database has some more to spare, on which nothing should rely.
    #[diesel(sql_type = BigInt)]
    pub capacity: i64,
    /// `max_locks_per_transaction`.
    #[diesel(sql_type = BigInt)]
    pub per_transaction: i64,
}

impl LockBudget {
    /// Returns the `max_locks_per_transaction` that this many reads at the same time need, if the
    /// present one is too low for them.
    pub fn needed_for(&self, reads: usize) -> Option<i64> {
        let needed = self.locks_per_read * reads as i64;
        if needed <= self.capacity {
            return None;
        }
        let transactions = (self.capacity / self.per_transaction).max(1);
        Some((needed as u64).div_ceil(transactions as u64) as i64)
    }
}

/// Reads how many locks the event log needs and the database has room for.
pub fn read_lock_budget(conn: &mut BlockingConnection) -> QueryResult<LockBudget> {
    sql_query(
        "SELECT count(DISTINCT p.relid) FILTER (WHERE p.isleaf) AS partitions, \
                count(DISTINCT p.relid) + count(i.indexrelid) AS locks_per_read, \
                current_setting('max_locks_per_transaction')::bigint AS per_transaction, \
                current_setting('max_locks_per_transaction')::bigint \
                * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) \
                    AS capacity \
         FROM pg_partition_tree('waybill.event_log') p LEFT JOIN pg_index i ON i.indrelid = p.relid",
    )
    .get_result(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_locks_are_needed_where_reads_at_the_same_time_exceed_the_room() {
        let budget = LockBudget { partitions: 1095, locks_per_read: 3288, capacity: 64 * 64, per_transaction: 64 };
        assert_eq!(budget.needed_for(1), None);
        assert_eq!(budget.needed_for(2), Some(103));
        assert_eq!(budget.needed_for(8), Some(411));
        let raised = LockBudget { capacity: 411 * 64, per_transaction: 411, ..budget };
        assert_eq!(raised.needed_for(8), None);
    }
}
