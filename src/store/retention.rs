//! Retention: the tables whose old rows are deleted, and the age at which that happens.
//!
//! The event log is not listed here. It is partitioned by day, and an old day is dropped as a whole.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};

/// Days for which a claim request is remembered. A worker that repeats an older one gets a new claim.
const CLAIM_REQUEST_DAYS: i32 = 1;

/// Days for which a worker is listed after its last call.
const WORKER_DAYS: i32 = 7;

/// Days for which an operation is listed after its end.
const OPERATION_DAYS: i32 = 30;

/// A table, and the age at which its rows are deleted.
pub(crate) struct RetentionRule {
    pub table: &'static str,
    days: i32,
    statement: Statement,
}

/// Returns the rules of all tables. `dead_letter_days` applies to dead letters.
pub(crate) fn rules(dead_letter_days: i32) -> [RetentionRule; 4] {
    [
        RetentionRule {
            table: "claim_requests",
            days: CLAIM_REQUEST_DAYS,
            statement: statement!("delete_old_claim_requests"),
        },
        RetentionRule { table: "workers", days: WORKER_DAYS, statement: statement!("delete_old_workers") },
        RetentionRule {
            table: "dead_letters",
            days: dead_letter_days,
            statement: statement!("delete_old_dead_letters"),
        },
        RetentionRule { table: "operations", days: OPERATION_DAYS, statement: statement!("delete_old_operations") },
    ]
}

/// Deletes up to `max_rows` old rows of one table. Returns the number of deleted rows.
pub(crate) async fn delete_old_rows(
    conn: &mut AsyncPgConnection,
    rule: &RetentionRule,
    now: Option<DateTime<Utc>>,
    max_rows: i64,
) -> QueryResult<usize> {
    let query = rule.statement.query();
    let query = query.bind::<Nullable<Timestamptz>, _>(now).bind::<Integer, _>(rule.days).bind::<BigInt, _>(max_rows);
    query.cached().execute(conn).await
}
