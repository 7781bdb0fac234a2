//! The server itself: its clock, its connections, its keys, and what its own counters say.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Check;
use super::words::{duration, listed, some};

/// The difference of clocks, in seconds, from which it is a warning.
const CLOCK_SKEW: f64 = 2.0;

/// The difference from which it is a problem: receivers refuse signatures whose time is five minutes off.
const MUCH_CLOCK_SKEW: f64 = 240.0;

/// The share of the database's connections that are in use from which it is a warning.
const MANY_CONNECTIONS: f64 = 0.75;

/// The share from which it is a problem.
const TOO_MANY_CONNECTIONS: f64 = 0.9;

/// Connections that a server opens besides its pool: for maintenance and for notifications.
const BESIDE_POOL: i64 = 2;

/// Keys that end within this many seconds are reported: two weeks.
pub(crate) const KEYS_END_WITHIN: f64 = 14.0 * 86_400.0;

/// Keys that end within this many seconds are a problem.
const KEYS_END_NOW: f64 = 86_400.0;

/// The lag of a retention, in seconds, from which it is a warning.
const RETENTION_LAG: f64 = 3_600.0;

/// The lag from which it is a problem.
const LONG_RETENTION_LAG: f64 = 86_400.0;

/// Returns what is said instead of [`super::settings`] if there is no connection.
pub(crate) fn check_reachable(reason: &str) -> Check {
    Check::problem(
        "postgresql",
        format!("the database cannot be reached: {reason}"),
        "Look whether PostgreSQL runs, whether its disk is full, and whether all its connections are in use.",
    )
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ClockFacts {
    database_seconds: f64,
}

impl ClockFacts {
    /// Returns how far the clock of this server is ahead of the database's, in seconds. It was `before` and `after` when
    /// the question was sent and answered, so only a difference beyond that is certain.
    pub(crate) fn skew(&self, before: f64, after: f64) -> f64 {
        let (ahead, behind) = (before - self.database_seconds, after - self.database_seconds);
        if ahead > 0.0 { ahead } else { behind.min(0.0) }
    }
}

/// Judges a clock that is `skew` seconds ahead of the database's.
pub(crate) fn check_clock(skew: f64) -> Check {
    const NAME: &str = "clock";
    let check = if skew.abs() < CLOCK_SKEW {
        Check::ok(NAME, "this server and the database have the same time")
    } else {
        let direction = if skew > 0.0 { "ahead of" } else { "behind" };
        Check::graded(
            NAME,
            skew.abs() >= MUCH_CLOCK_SKEW,
            format!("the clock of this server is {} {direction} the database's", duration(skew.abs())),
            "Let both machines follow the same time servers (timedatectl set-ntp true). Work follows the database's clock, \
             certificates and log lines follow the server's.",
        )
    };
    check.with(json!({ "ahead_seconds": (skew * 1_000.0).round() / 1_000.0 }))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ConnectionFacts {
    used: i64,
    max_connections: i64,
    reserved: i64,
}

/// Judges the connections of the database. This server may open `pool` and a few more.
pub(crate) fn check_connections(facts: &ConnectionFacts, pool: usize) -> Check {
    const NAME: &str = "connections";
    let available = (facts.max_connections - facts.reserved).max(1);
    let wanted = pool as i64 + BESIDE_POOL;
    let share = facts.used as f64 / available as f64;
    let check = if wanted > available {
        Check::problem(
            NAME,
            format!("this server may open {wanted} connections, and the database accepts {available}"),
            "Lower --db-connections, or raise max_connections and restart PostgreSQL.",
        )
    } else if share >= MANY_CONNECTIONS {
        Check::graded(
            NAME,
            share >= TOO_MANY_CONNECTIONS,
            format!("{} of {available} connections of the database are in use", facts.used),
            "Lower --db-connections of the servers, put a PgBouncer in front, or raise max_connections.",
        )
    } else {
        Check::ok(NAME, format!("{} of {available} connections of the database are in use", facts.used))
    };
    check.with(json!({"used": facts.used, "available": available, "pool": pool}))
}

/// The use of a server's connection pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolFacts {
    pub max: usize,
    pub in_use: usize,
    pub idle: usize,
    /// Calls that wait for a connection.
    pub waiting: usize,
}

pub(crate) fn check_pool(facts: &PoolFacts) -> Check {
    const NAME: &str = "pool";
    let check = if facts.waiting > 0 {
        Check::warning(
            NAME,
            format!("all {} connections of this server are in use, and {} wait for one", facts.max, facts.waiting),
            "If it stays so, look for slow statements (pg_stat_activity), or raise --db-connections.",
        )
    } else {
        Check::ok(NAME, format!("{} of {} connections of this server are in use", facts.in_use, facts.max))
    };
    check.with(json!({"max": facts.max, "in_use": facts.in_use, "idle": facts.idle, "waiting": facts.waiting}))
}

/// Judges why the last write failed, if it did.
pub(crate) fn check_writes(outage: Option<&str>) -> Check {
    const NAME: &str = "writes";
    match outage {
        None => Check::ok(NAME, "the last write succeeded"),
        Some(reason) => Check::problem(
            NAME,
            format!("the last write failed: {reason}"),
            "Look at the disk and the log of PostgreSQL. Callers get 503 until a write succeeds.",
        ),
    }
}

/// Judges the number of leases that were missing from the list of leases.
pub(crate) fn check_unwatched_leases(count: u64) -> Check {
    const NAME: &str = "unwatched_leases";
    let check = match count {
        0 => Check::ok(NAME, "every lease is watched"),
        _ => Check::problem(
            NAME,
            format!("{} not watched, and repaired since this server started", some(count as i64, "lease")),
            "This is a bug of Waybill: please report it, with the lines of the log that name the events.",
        ),
    };
    check.with(json!({ "leases": count }))
}

/// Judges by how much the removal of old rows is behind, in seconds, by table.
pub(crate) fn check_retention(lags: &[(&'static str, f64)]) -> Check {
    const NAME: &str = "retention";
    let worst = lags.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let check = match worst {
        Some((table, lag)) if *lag >= RETENTION_LAG => Check::graded(
            NAME,
            *lag >= LONG_RETENTION_LAG,
            format!("the removal of old rows of {table} is {} behind", duration(*lag)),
            "Look in the log for the services removal of events, search for old events, retention, and maintenance, and for \
             --archive-dir being full or gone.",
        ),
        _ => Check::ok(NAME, "old rows are removed in time"),
    };
    let lags: serde_json::Map<_, _> = lags.iter().map(|(table, lag)| ((*table).to_owned(), json!(lag))).collect();
    check.with(json!({ "lag_seconds": lags }))
}

/// The keys of secrets that values in the database need.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecretFacts {
    /// Keys that this server does not have, each with the number of values that need it.
    pub missing: Vec<(String, i64)>,
    /// Values that are not encrypted although the server has a key.
    pub plain: i64,
    /// Subscriptions that wait because of that.
    pub held: i64,
}

pub(crate) fn check_secrets(facts: &SecretFacts) -> Check {
    const NAME: &str = "secrets";
    let names: Vec<&str> = facts.missing.iter().map(|(name, _)| name.as_str()).collect();
    let check = if !names.is_empty() || facts.held > 0 {
        let summary = match names.as_slice() {
            [] => "secrets cannot be decrypted".to_owned(),
            names => format!("this server does not have the secret key {}", listed(names)),
        };
        Check::problem(
            NAME,
            format!("{summary}: pushes of {} wait", some(facts.held, "subscription")),
            "Give this server the key (docs/secrets.md, A key that is missing).",
        )
    } else if facts.plain > 0 {
        Check::warning(
            NAME,
            format!("{} not encrypted yet", some(facts.plain, "secret")),
            "Run waybill secrets rotate.",
        )
    } else {
        Check::ok(NAME, "all secrets can be read")
    };
    check.with(json!({"missing_keys": names, "plain": facts.plain, "held_subscriptions": facts.held}))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct KeyFacts {
    keys: Vec<EndingKey>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct EndingKey {
    namespace: String,
    id: i64,
    name: String,
    seconds: f64,
}

pub(crate) fn check_keys(facts: &KeyFacts) -> Check {
    const NAME: &str = "keys";
    let check = match facts.keys.as_slice() {
        [] => Check::ok(NAME, "no key ends within two weeks"),
        [first, ..] => {
            let names: Vec<String> =
                facts.keys.iter().map(|key| format!("{} in {}", key.name, duration(key.seconds))).collect();
            Check::graded(
                NAME,
                first.seconds < KEYS_END_NOW,
                format!(
                    "{} within two weeks: {}",
                    if names.len() == 1 { "1 key ends" } else { "keys end" },
                    listed(&names)
                ),
                format!(
                    "Make a new key (waybill keys create), give it to whoever uses the old one, then run waybill keys \
                     revoke {}.",
                    first.id
                ),
            )
        }
    };
    check.with(json!({ "keys": facts.keys }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::CheckStatus;

    #[test]
    fn the_time_of_the_question_is_no_skew() {
        let facts = ClockFacts { database_seconds: 100.0 };
        assert_eq!(facts.skew(99.0, 101.0), 0.0);
        assert_eq!(facts.skew(105.0, 106.0), 5.0);
        assert_eq!(facts.skew(90.0, 93.0), -7.0);
    }

    #[test]
    fn a_clock_is_judged_in_both_directions() {
        assert_eq!(check_clock(1.9).status, CheckStatus::Ok);
        assert_eq!(check_clock(2.0).summary, "the clock of this server is 2 s ahead of the database's");
        assert_eq!(check_clock(-90.0).summary, "the clock of this server is 1 min behind the database's");
        assert_eq!(
            [check_clock(-90.0).status, check_clock(-240.0).status],
            [CheckStatus::Warning, CheckStatus::Problem]
        );
    }

    #[test]
    fn connections_are_judged_by_their_share_and_by_what_this_server_wants() {
        let status =
            |used, pool| check_connections(&ConnectionFacts { used, max_connections: 103, reserved: 3 }, pool).status;
        assert_eq!(
            [status(74, 8), status(75, 8), status(90, 8)],
            [CheckStatus::Ok, CheckStatus::Warning, CheckStatus::Problem]
        );
        assert_eq!([status(5, 98), status(5, 99)], [CheckStatus::Ok, CheckStatus::Problem]);
    }

    #[test]
    fn calls_that_wait_for_a_connection_are_a_warning() {
        let facts = PoolFacts { max: 8, in_use: 2, idle: 6, waiting: 0 };
        assert_eq!(check_pool(&facts).summary, "2 of 8 connections of this server are in use");
        assert_eq!(check_pool(&PoolFacts { idle: 0, waiting: 3, ..facts }).status, CheckStatus::Warning);
    }

    #[test]
    fn a_retention_is_judged_by_the_table_that_is_most_behind() {
        assert_eq!(check_retention(&[]).status, CheckStatus::Ok);
        assert_eq!(check_retention(&[("events", 10.0)]).status, CheckStatus::Ok);
        let check = check_retention(&[("events", 4_000.0), ("event_log", 90_000.0)]);
        assert_eq!(check.status, CheckStatus::Problem);
        assert_eq!(check.summary, "the removal of old rows of event_log is 25 h behind");
        assert_eq!(check_retention(&[("events", 4_000.0)]).status, CheckStatus::Warning);
    }

    #[test]
    fn a_secret_key_that_is_missing_is_graver_than_a_secret_that_is_not_encrypted() {
        assert_eq!(check_secrets(&SecretFacts::default()).status, CheckStatus::Ok);
        let plain = SecretFacts { plain: 2, ..SecretFacts::default() };
        assert_eq!(check_secrets(&plain).status, CheckStatus::Warning);
        let missing = SecretFacts { missing: vec![("k1".into(), 3)], held: 1, ..plain };
        let check = check_secrets(&missing);
        assert_eq!(check.status, CheckStatus::Problem);
        assert_eq!(check.summary, "this server does not have the secret key k1: pushes of 1 subscription wait");
    }

    #[test]
    fn a_key_that_ends_within_a_day_is_a_problem() {
        let check = |seconds| {
            let key = EndingKey { namespace: "default".into(), id: 7, name: "deploy".into(), seconds };
            check_keys(&KeyFacts { keys: vec![key] })
        };
        assert_eq!(check(13.0 * 86_400.0).summary, "1 key ends within two weeks: deploy in 13 days");
        assert_eq!([check(86_400.0).status, check(86_399.0).status], [CheckStatus::Warning, CheckStatus::Problem]);
        assert!(check(10.0).advice.is_some_and(|advice| advice.ends_with("waybill keys revoke 7.")));
    }

    #[test]
    fn counters_that_should_stay_zero_are_problems_otherwise() {
        assert_eq!(
            [check_unwatched_leases(0).status, check_unwatched_leases(1).status],
            [CheckStatus::Ok, CheckStatus::Problem]
        );
        assert_eq!(
            [check_writes(None).status, check_writes(Some("disk full")).status],
            [CheckStatus::Ok, CheckStatus::Problem]
        );
    }
}
