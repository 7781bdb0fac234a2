//! What keeps PostgreSQL from removing dead rows and old WAL: open transactions, prepared ones, replication slots; and
//! the age of transaction ids.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Check;
use super::words::{bytes, duration, some};

/// The age of an open transaction, in seconds, from which it is a warning.
const LONG: f64 = 300.0;

/// The age from which it is a problem.
const TOO_LONG: f64 = 3_600.0;

/// The WAL that a slot may hold back before it is a problem.
const MUCH_WAL: i64 = 10 << 30;

/// The age of transaction ids from which it is a warning. Autovacuum begins to work on it at 200 million.
const OLD_IDS: i64 = 700_000_000;

/// The age from which it is a problem: PostgreSQL stops at 2,100 million.
const TOO_OLD_IDS: i64 = 1_500_000_000;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TransactionFacts {
    /// The number of sessions that the role of the server may not look at.
    hidden: i64,
    role: String,
    open: Vec<OpenTransaction>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct OpenTransaction {
    pid: i64,
    role: Option<String>,
    application: Option<String>,
    state: Option<String>,
    seconds: f64,
}

pub(crate) fn check_transactions(facts: &TransactionFacts) -> Check {
    const NAME: &str = "transactions";
    let long: Vec<&OpenTransaction> = facts.open.iter().filter(|open| open.seconds >= LONG).collect();
    let check = if let Some(oldest) = long.first() {
        Check::graded(
            NAME,
            oldest.seconds >= TOO_LONG,
            format!(
                "a transaction of {} has been open for {}: dead rows cannot be removed",
                oldest.role.as_deref().unwrap_or("an unknown role"),
                duration(oldest.seconds)
            ),
            format!("Find out what process {0} does, or end it: SELECT pg_terminate_backend({0});", oldest.pid),
        )
    } else if facts.hidden > 0 {
        let reason = format!("{} of other roles cannot be looked at", some(facts.hidden, "session"));
        Check::unknown(NAME, reason, Some(&format!("Run GRANT pg_read_all_stats TO {};", facts.role)))
    } else {
        Check::ok(NAME, "no transaction has been open for long")
    };
    check.with(json!({"open": long, "hidden_sessions": facts.hidden}))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PreparedFacts {
    prepared: Vec<PreparedTransaction>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct PreparedTransaction {
    gid: String,
    owner: String,
    seconds: f64,
}

pub(crate) fn check_prepared(facts: &PreparedFacts) -> Check {
    const NAME: &str = "prepared_transactions";
    let check = match facts.prepared.first() {
        Some(oldest) if oldest.seconds >= LONG => Check::graded(
            NAME,
            oldest.seconds >= TOO_LONG,
            format!(
                "{:?} of {} has been prepared for {}, and keeps its locks",
                oldest.gid,
                oldest.owner,
                duration(oldest.seconds)
            ),
            format!("End it: ROLLBACK PREPARED '{0}'; or COMMIT PREPARED '{0}';", oldest.gid.replace('\'', "''")),
        ),
        _ => Check::ok(NAME, "no transaction is prepared for long"),
    };
    check.with(json!({ "prepared": facts.prepared }))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SlotFacts {
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct Slot {
    slot: String,
    is_active: bool,
    /// `None` if it holds back none.
    retained_bytes: Option<i64>,
    wal_status: Option<String>,
    /// Whether it keeps dead rows from being removed.
    holds_rows: bool,
}

impl Slot {
    fn is_harmful(&self) -> bool {
        let retained = self.retained_bytes.unwrap_or(0);
        retained >= MUCH_WAL
            || self.wal_status.as_deref().is_some_and(|status| ["unreserved", "lost"].contains(&status))
    }
}

pub(crate) fn check_slots(facts: &SlotFacts) -> Check {
    const NAME: &str = "replication_slots";
    let suspect = facts.slots.iter().find(|slot| slot.is_harmful()).or(facts.slots.iter().find(|slot| !slot.is_active));
    let check = match suspect {
        None => Check::ok(NAME, "no replication slot is unused"),
        Some(slot) => {
            let rows = if slot.holds_rows { " and dead rows" } else { "" };
            let use_of_it = if slot.is_active { "is far behind" } else { "is not used" };
            let kept = bytes(slot.retained_bytes.unwrap_or(0));
            Check::graded(
                NAME,
                slot.is_harmful(),
                format!("the replication slot {:?} {use_of_it}, and keeps {kept} of WAL{rows}", slot.slot),
                format!(
                    "Start what reads it, or drop it: SELECT pg_drop_replication_slot('{}');",
                    slot.slot.replace('\'', "''")
                ),
            )
        }
    };
    check.with(json!({ "slots": facts.slots }))
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct WraparoundFacts {
    database: String,
    transaction_age: i64,
    multixact_age: i64,
    freeze_max_age: i64,
}

pub(crate) fn check_wraparound(facts: &WraparoundFacts) -> Check {
    const NAME: &str = "wraparound";
    let age = facts.transaction_age.max(facts.multixact_age);
    let check = if age < OLD_IDS {
        Check::ok(NAME, format!("transaction ids are {} million old", age / 1_000_000))
    } else {
        Check::graded(
            NAME,
            age >= TOO_OLD_IDS,
            format!(
                "transaction ids of the database {:?} are {} million old; PostgreSQL stops at 2100 million",
                facts.database,
                age / 1_000_000
            ),
            "End what holds rows back (the checks of transactions and slots), then run VACUUM FREEZE in that database.",
        )
    };
    check.with(json!(facts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::CheckStatus;

    fn transactions(seconds: &[f64], hidden: i64) -> Check {
        let open = |seconds: &f64| OpenTransaction {
            pid: 4_711,
            role: Some("report".into()),
            application: None,
            state: Some("idle in transaction".into()),
            seconds: *seconds,
        };
        check_transactions(&TransactionFacts { hidden, role: "queue".into(), open: seconds.iter().map(open).collect() })
    }

    #[test]
    fn a_transaction_is_judged_by_its_age() {
        assert_eq!(transactions(&[], 0).status, CheckStatus::Ok);
        assert_eq!(transactions(&[299.0], 0).status, CheckStatus::Ok);
        assert_eq!(transactions(&[300.0], 0).status, CheckStatus::Warning);
        let check = transactions(&[3_600.0, 10.0], 0);
        assert_eq!(check.status, CheckStatus::Problem);
        assert_eq!(check.summary, "a transaction of report has been open for 1 h: dead rows cannot be removed");
        assert!(check.advice.is_some_and(|advice| advice.ends_with(" pg_terminate_backend(4711);")));
    }

    #[test]
    fn sessions_that_cannot_be_looked_at_make_the_result_unknown_unless_others_are_bad() {
        let check = transactions(&[], 2);
        assert_eq!(
            (check.status, check.advice.as_deref()),
            (CheckStatus::Unknown, Some("Run GRANT pg_read_all_stats TO queue;"))
        );
        assert_eq!(transactions(&[400.0], 2).status, CheckStatus::Warning);
    }

    #[test]
    fn a_prepared_transaction_is_judged_by_its_age() {
        let check = |seconds| {
            let prepared = vec![PreparedTransaction { gid: "it's".into(), owner: "app".into(), seconds }];
            check_prepared(&PreparedFacts { prepared })
        };
        assert_eq!(check(10.0).status, CheckStatus::Ok);
        assert_eq!(check(4_000.0).status, CheckStatus::Problem);
        let advice = "End it: ROLLBACK PREPARED 'it''s'; or COMMIT PREPARED 'it''s';";
        assert_eq!((check(301.0).status, check(301.0).advice.as_deref()), (CheckStatus::Warning, Some(advice)));
    }

    #[test]
    fn a_slot_is_judged_by_its_use_and_by_what_it_keeps() {
        let status = |is_active, retained_bytes, wal_status: &str| {
            let slot = "standby".to_owned();
            let wal_status = Some(wal_status.to_owned());
            let slots =
                vec![Slot { slot, is_active, retained_bytes: Some(retained_bytes), wal_status, holds_rows: false }];
            check_slots(&SlotFacts { slots }).status
        };
        assert_eq!(status(true, 1 << 30, "extended"), CheckStatus::Ok);
        assert_eq!(status(false, 0, "reserved"), CheckStatus::Warning);
        assert_eq!(status(true, 11 << 30, "extended"), CheckStatus::Problem);
        assert_eq!(status(false, 0, "lost"), CheckStatus::Problem);
    }

    #[test]
    fn the_older_of_both_kinds_of_ids_counts() {
        let status = |transaction_age, multixact_age| {
            let facts = WraparoundFacts {
                database: "queue".into(),
                transaction_age,
                multixact_age,
                freeze_max_age: 200_000_000,
            };
            check_wraparound(&facts).status
        };
        assert_eq!(status(250_000_000, 5), CheckStatus::Ok);
        assert_eq!(status(5, 700_000_000), CheckStatus::Warning);
        assert_eq!(status(1_500_000_000, 5), CheckStatus::Problem);
    }
}
