//! Retention: everything that is deleted because of its age, and the age at which that happens.
//!
//! [`rules`] is the table of small tables, whose old rows are found by an index of their age. [`events`] removes
//! events with their deliveries, and [`log`] whole weeks of the event log. `docs/operations.md` has one
//! table of all of them, and of what is bounded elsewhere: rotated secrets and versions of schemas leave with the change
//! that replaces them, and servers with the sign of life of another one (`engine/limits/refresh.rs`).

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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the table says about each table of the database: the time, and the setting.
    fn documented() -> Vec<(Vec<&'static str>, &'static str, &'static str)> {
        let operations = include_str!("../../../docs/operations.md");
        let (_, section) = operations.split_once("\n## What is kept how long\n").expect("the section");
        let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
        let cells = rows.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
        cells.map(|cells| (cells[0].split('`').skip(1).step_by(2).collect(), cells[1], cells[2])).collect()
    }

    /// Returns the only row of a table of the database: the time, and the setting.
    fn row_of(table: &str) -> (&'static str, &'static str) {
        let mut rows = documented().into_iter().filter(|(tables, ..)| tables.contains(&table));
        let (_, kept, setting) = rows.next().unwrap_or_else(|| panic!("{table} is not in the table"));
        assert!(rows.next().is_none(), "{table} is listed twice");
        (kept, setting)
    }

    /// The ages that operators set are longer than any other here.
    #[test]
    fn every_rule_is_documented_with_its_age_or_its_setting() {
        let (dead_letters, log, audit) = (Retention::days(1_001), Retention::days(1_002), Retention::days(1_003));
        let settings = [
            (dead_letters, "`--dead-letter-retention`"),
            (log, "`--log-retention`"),
            (audit, "`--audit-retention`"),
            // They say themselves when they end.
            (Retention::Seconds(0), "`--idempotency-retention`"),
        ];
        for rule in rules(dead_letters, log, audit) {
            let (kept, setting) = row_of(rule.table);
            let flag = settings.iter().find(|(retention, _)| *retention == rule.retention).map(|(_, flag)| *flag);
            assert_eq!(setting, flag.unwrap_or("–"), "{}", rule.table);
            if flag.is_none() {
                let days = rule.retention.length().expect("an age").as_secs() / 86_400;
                let unit = if days == 1 { "day" } else { "days" };
                assert!(kept.starts_with(&format!("{days} {unit}")), "{}: {days}, and not {kept}", rule.table);
            }
        }
    }

    #[test]
    fn what_is_documented_is_removed_by_a_rule_or_known_to_be_removed_elsewhere() {
        let rules = rules(Retention::Forever, Retention::Forever, Retention::Forever);
        let elsewhere = [
            "events",
            "deliveries",
            "event_tags",
            "event_log",
            "subscription_secrets",
            "source_secrets",
            "event_type_versions",
            "servers",
        ];
        for table in documented().into_iter().flat_map(|(tables, ..)| tables) {
            assert!(elsewhere.contains(&table) || rules.iter().any(|rule| rule.table == table), "{table}");
        }
        assert!(elsewhere.iter().all(|table| !row_of(table).0.is_empty()));
    }
}
