//! Upkeep that runs on a connection of its own, from a plain thread: days of the audit trail
//! prepared ahead, and what may be forgotten forgotten.

use diesel::prelude::{QueryableByName, RunQueryDsl};
use diesel::sql_types::{BigInt, Bool, Integer};
use diesel::{QueryResult, sql_query};

use super::blocking::BlockingConnection;

/// Rows that one statement deletes at most.
const ROWS_PER_DELETE: i64 = 1_000;

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

/// Forgets claim requests that nobody will ask for again; answers how many.
pub fn forget_claim_requests(conn: &mut BlockingConnection) -> QueryResult<usize> {
    delete_in_batches(
        conn,
        "DELETE FROM waybill.claim_requests WHERE (namespace_id, worker_id, request_id) IN \
         (SELECT namespace_id, worker_id, request_id FROM waybill.claim_requests \
          WHERE claimed_at < now() - interval '24 hours' ORDER BY claimed_at LIMIT $1)",
    )
}

/// Forgets workers that have not been seen for a week; answers how many.
pub fn forget_workers(conn: &mut BlockingConnection) -> QueryResult<usize> {
    delete_in_batches(
        conn,
        "DELETE FROM waybill.workers WHERE (namespace_id, worker_id) IN \
         (SELECT namespace_id, worker_id FROM waybill.workers \
          WHERE last_seen_at < now() - interval '7 days' ORDER BY last_seen_at LIMIT $1)",
    )
}

/// Runs a bounded delete until it has nothing left: a busy queue leaves more behind between
/// two rounds than one statement should take away.
fn delete_in_batches(conn: &mut BlockingConnection, statement: &str) -> QueryResult<usize> {
    let mut deleted = 0;
    loop {
        let batch = sql_query(statement).bind::<BigInt, _>(ROWS_PER_DELETE).execute(conn)?;
        deleted += batch;
        if (batch as i64) < ROWS_PER_DELETE {
            return Ok(deleted);
        }
    }
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
