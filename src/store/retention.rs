//! Retention: every table whose old rows are deleted, with the age at which they are.
//!
//! The audit log is not here: it is partitioned by day, so that its old days can be dropped whole.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};

/// Days after which a worker that repeats a claim request gets a new claim.
const CLAIM_REQUEST_DAYS: i32 = 1;

/// Days for which a worker that does not call any more is listed.
const WORKER_DAYS: i32 = 7;

/// Deletes the rows of one table that are older than `days`.
pub struct RetentionRule {
    pub table: &'static str,
    days: i32,
    statement: Statement,
}

/// Returns the rules for all tables. The retention of dead letters and replays is configurable.
pub fn rules(dead_letter_days: i32) -> [RetentionRule; 4] {
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
        RetentionRule { table: "replay_jobs", days: dead_letter_days, statement: statement!("delete_old_replay_jobs") },
    ]
}

/// Deletes up to `max_rows` old rows of one table. Returns their number.
pub async fn delete_old_rows(
    conn: &mut AsyncPgConnection,
    rule: &RetentionRule,
    now: Option<DateTime<Utc>>,
    max_rows: i64,
) -> QueryResult<usize> {
    let query = rule.statement.query();
    let query = query.bind::<Nullable<Timestamptz>, _>(now).bind::<Integer, _>(rule.days).bind::<BigInt, _>(max_rows);
    query.cached().execute(conn).await
}
