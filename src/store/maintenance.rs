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
