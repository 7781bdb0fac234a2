//! Retention: everything that is deleted because of its age, and the age at which that happens.
//!
//! [`rules`] is the table of small tables, whose old rows are found by an index of their age. [`events`] removes
//! events with their deliveries, and [`log`] whole weeks of the event log. `docs/operations.md` has one
//! table of all of them.

pub mod events;
pub(crate) mod log;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::sql_types::{BigInt, Double, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::retention::Retention;
use crate::domain::stats::window::{HOUR_DAYS, MINUTE_DAYS};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};

/// Days for which a claim request is remembered. A worker that repeats an older one gets a new claim.
const CLAIM_REQUEST_DAYS: u64 = 1;

/// Days for which a worker is listed after its last call.
const WORKER_DAYS: u64 = 7;

/// Days for which an operation is listed after its end.
const OPERATION_DAYS: u64 = 30;

/// Days for which a refused settlement is shown after its last call.
const REFUSED_SETTLEMENT_DAYS: u64 = 7;

/// Days for which the state of an endpoint is kept that no subscription names any longer.
const ENDPOINT_DAYS: u64 = 30;

/// Days for which a key is listed after it was revoked or has expired, and for which a secret that was replaced is
/// known: until then its caller learns why it is refused.
const KEY_DAYS: u64 = 90;

/// A table, and the age at which its rows are deleted.
pub(crate) struct RetentionRule {
    pub table: &'static str,
    retention: Retention,
    statement: Statement,
}

/// Returns the rules of all small tables. A subscription that was deleted is kept for `log`, because entries of the
/// log name it.
pub(crate) fn rules(dead_letters: Retention, log: Retention, audit: Retention) -> [RetentionRule; 13] {
    let rule = |table, retention, statement| RetentionRule { table, retention, statement };
    [
        rule("claim_requests", Retention::days(CLAIM_REQUEST_DAYS), statement!("delete_old_claim_requests")),
        // A key says itself when it ends.
        rule("idempotency_keys", Retention::Seconds(0), statement!("delete_old_idempotency_keys")),
        rule("workers", Retention::days(WORKER_DAYS), statement!("delete_old_workers")),
        rule("dead_letters", dead_letters, statement!("delete_old_dead_letters")),
        rule("operations", Retention::days(OPERATION_DAYS), statement!("delete_old_operations")),
        rule("audit_log", audit, statement!("delete_old_audit_entries")),
        rule(
            "refused_settlements",
            Retention::days(REFUSED_SETTLEMENT_DAYS),
            statement!("delete_old_refused_settlements"),
        ),
        rule("endpoints", Retention::days(ENDPOINT_DAYS), statement!("delete_old_endpoints")),
        rule("api_keys", Retention::days(KEY_DAYS), statement!("delete_old_api_keys")),
        rule("api_key_secrets", Retention::days(KEY_DAYS), statement!("delete_old_key_secrets")),
        rule("stats_minutes", Retention::days(MINUTE_DAYS), statement!("delete_old_stats_minutes")),
        rule("stats_hours", Retention::days(HOUR_DAYS), statement!("delete_old_stats_hours")),
        // After the dead letters: one that is left keeps its subscription.
        rule("subscriptions", log, statement!("delete_old_subscriptions")),
    ]
}

/// Deletes up to `max_rows` old rows of one table. Returns the number of deleted rows.
pub(crate) async fn delete_old_rows(
    conn: &mut AsyncPgConnection,
    rule: &RetentionRule,
    now: Option<DateTime<Utc>>,
    max_rows: i64,
) -> QueryResult<usize> {
    let Some(age) = rule.retention.length() else { return Ok(0) };
    let query = rule.statement.query().bind::<Nullable<Timestamptz>, _>(now);
    query.bind::<Double, _>(age.as_secs_f64()).bind::<BigInt, _>(max_rows).cached().execute(conn).await
}
