//! The version and the settings of PostgreSQL.

use serde::Deserialize;
use serde_json::json;

use super::Check;
use super::words::bytes;

/// The oldest supported version, as `server_version_num` writes it.
const OLDEST_VERSION: i32 = 150_000;

/// The size from which a database should have more memory than PostgreSQL's default.
const LARGE_DATABASE: i64 = 4 << 30;

/// PostgreSQL's default of `shared_buffers`.
const DEFAULT_BUFFERS: i64 = 128 << 20;

/// The settings as a connection of the server has them.
#[derive(Debug, Clone, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of PostgreSQL")]
pub(crate) struct SettingFacts {
    version: String,
    version_num: i32,
    is_in_recovery: bool,
    is_read_only: bool,
    fsync: bool,
    full_page_writes: bool,
    synchronous_commit: String,
    autovacuum: bool,
    track_counts: bool,
    transaction_isolation: String,
    plan_cache_mode: String,
    enable_seqscan: bool,
    lock_timeout: String,
    idle_in_transaction_session_timeout: String,
}

/// The checks that [`check_settings`] returns.
pub(crate) const SETTING_CHECKS: &[&str] = &["postgresql", "durability", "autovacuum", "connection_settings"];

pub(crate) fn check_settings(facts: &SettingFacts) -> Vec<Check> {
    vec![version(facts), durability(facts), autovacuum(facts), connection_settings(facts)]
}

fn version(facts: &SettingFacts) -> Check {
    const NAME: &str = "postgresql";
    let check = if facts.version_num < OLDEST_VERSION {
        let advice = "Move the database to PostgreSQL 15 or newer: older versions are not tested.";
        Check::problem(NAME, format!("PostgreSQL {} is too old", facts.version), advice)
    } else if facts.is_in_recovery || facts.is_read_only {
        let advice = "Point DATABASE_URL at the primary, or name several hosts with target_session_attrs=read-write.";
        Check::problem(NAME, format!("PostgreSQL {} does not accept writes", facts.version), advice)
    } else {
        Check::ok(NAME, format!("PostgreSQL {}", facts.version))
    };
    check.with(
        json!({"version": facts.version, "is_in_recovery": facts.is_in_recovery, "is_read_only": facts.is_read_only}),
    )
}

fn durability(facts: &SettingFacts) -> Check {
    const NAME: &str = "durability";
    let off = [
        ("fsync", !facts.fsync),
        ("full_page_writes", !facts.full_page_writes),
        ("synchronous_commit", facts.synchronous_commit == "off"),
    ];
    let off: Vec<&str> = off.iter().filter(|(_, is_off)| *is_off).map(|(name, _)| *name).collect();
    let check = if off.is_empty() {
        Check::ok(NAME, "an acknowledged write is on disk")
    } else {
        let statements: Vec<String> = off.iter().map(|name| format!("ALTER SYSTEM SET {name} = on;")).collect();
        Check::problem(
            NAME,
            format!("a crash may lose acknowledged writes, or all: off is {}", off.join(", ")),
            format!("Run {} SELECT pg_reload_conf();", statements.join(" ")),
        )
    };
    check.with(json!({
        "fsync": facts.fsync,
        "full_page_writes": facts.full_page_writes,
        "synchronous_commit": facts.synchronous_commit,
    }))
}

fn autovacuum(facts: &SettingFacts) -> Check {
    const NAME: &str = "autovacuum";
    let check = if facts.autovacuum && facts.track_counts {
        Check::ok(NAME, "autovacuum runs")
    } else {
        Check::problem(
            NAME,
            "autovacuum does not run: tables grow, and claims get slower",
            "Run ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();",
        )
    };
    check.with(json!({"autovacuum": facts.autovacuum, "track_counts": facts.track_counts}))
}

fn connection_settings(facts: &SettingFacts) -> Check {
    const NAME: &str = "connection_settings";
    let missing = [
        ("default_transaction_isolation", facts.transaction_isolation != "read committed"),
        ("plan_cache_mode", facts.plan_cache_mode != "force_generic_plan"),
        ("enable_seqscan", facts.enable_seqscan),
        ("lock_timeout", facts.lock_timeout == "0"),
        ("idle_in_transaction_session_timeout", facts.idle_in_transaction_session_timeout == "0"),
    ];
    let missing: Vec<&str> = missing.iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Check::ok(NAME, "connections have the settings that the server gave them");
    }
    Check::problem(
        NAME,
        format!("connections have lost settings that the server gave them: {}", missing.join(", ")),
        "A proxy pools transactions: set connect_query as docs/operations.md, Behind PgBouncer, shows.",
    )
    .with(json!({ "missing": missing }))
}

/// The size of the database.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SizeFacts {
    database_bytes: i64,
    shared_buffers_bytes: i64,
}

pub(crate) fn check_size(facts: &SizeFacts) -> Check {
    const NAME: &str = "size";
    let SizeFacts { database_bytes, shared_buffers_bytes } = *facts;
    let check = if database_bytes > LARGE_DATABASE && shared_buffers_bytes <= DEFAULT_BUFFERS {
        Check::warning(
            NAME,
            format!(
                "the database has {}, and shared_buffers is {}",
                bytes(database_bytes),
                bytes(shared_buffers_bytes)
            ),
            "Set shared_buffers to about a quarter of the machine's memory, and restart PostgreSQL.",
        )
    } else {
        Check::ok(NAME, format!("the database has {}", bytes(database_bytes)))
    };
    check.with(json!({"database_bytes": database_bytes, "shared_buffers_bytes": shared_buffers_bytes}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::CheckStatus;

    fn healthy() -> SettingFacts {
        SettingFacts {
            version: "15.6".into(),
            version_num: 150_006,
            is_in_recovery: false,
            is_read_only: false,
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".into(),
            autovacuum: true,
            track_counts: true,
            transaction_isolation: "read committed".into(),
            plan_cache_mode: "force_generic_plan".into(),
            enable_seqscan: false,
            lock_timeout: "4s".into(),
            idle_in_transaction_session_timeout: "15s".into(),
        }
    }

    /// Returns the names of the checks that find a problem.
    fn problems(facts: &SettingFacts) -> Vec<&'static str> {
        let checks = check_settings(facts);
        assert_eq!(checks.iter().map(|check| check.name).collect::<Vec<_>>(), SETTING_CHECKS);
        checks.iter().filter(|check| check.status == CheckStatus::Problem).map(|check| check.name).collect()
    }

    #[test]
    fn each_setting_has_its_check() {
        assert_eq!(problems(&healthy()), [""; 0]);
        assert_eq!(problems(&SettingFacts { version_num: 140_010, ..healthy() }), ["postgresql"]);
        assert_eq!(problems(&SettingFacts { is_in_recovery: true, ..healthy() }), ["postgresql"]);
        assert_eq!(problems(&SettingFacts { is_read_only: true, ..healthy() }), ["postgresql"]);
        assert_eq!(problems(&SettingFacts { fsync: false, ..healthy() }), ["durability"]);
        assert_eq!(problems(&SettingFacts { full_page_writes: false, ..healthy() }), ["durability"]);
        assert_eq!(problems(&SettingFacts { synchronous_commit: "off".into(), ..healthy() }), ["durability"]);
        assert_eq!(problems(&SettingFacts { synchronous_commit: "local".into(), ..healthy() }), [""; 0]);
        assert_eq!(problems(&SettingFacts { autovacuum: false, ..healthy() }), ["autovacuum"]);
        assert_eq!(problems(&SettingFacts { track_counts: false, ..healthy() }), ["autovacuum"]);
        let lost = [
            SettingFacts { transaction_isolation: "serializable".into(), ..healthy() },
            SettingFacts { plan_cache_mode: "auto".into(), ..healthy() },
            SettingFacts { enable_seqscan: true, ..healthy() },
            SettingFacts { lock_timeout: "0".into(), ..healthy() },
            SettingFacts { idle_in_transaction_session_timeout: "0".into(), ..healthy() },
        ];
        for facts in lost {
            assert_eq!(problems(&facts), ["connection_settings"], "{facts:?}");
        }
    }

    #[test]
    fn the_advice_names_each_setting_that_is_off() {
        let facts = SettingFacts { fsync: false, synchronous_commit: "off".into(), ..healthy() };
        let check = durability(&facts);
        let advice =
            "Run ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf();";
        assert_eq!(check.advice.as_deref(), Some(advice));
    }

    #[test]
    fn a_large_database_wants_more_memory_than_the_default() {
        let status = |database_bytes, shared_buffers_bytes| {
            check_size(&SizeFacts { database_bytes, shared_buffers_bytes }).status
        };
        assert_eq!(status(1 << 30, 128 << 20), CheckStatus::Ok);
        assert_eq!(status(5 << 30, 128 << 20), CheckStatus::Warning);
        assert_eq!(status(5 << 30, 2 << 30), CheckStatus::Ok);
    }
}
