//! Tables, indexes, partitions and locks.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Check;
use super::words::{duration, listed, some};

/// The number of dead rows of a table from which they are a warning, if it has fewer live ones.
const MANY_DEAD_ROWS: i64 = 1_000_000;

/// The number from which they are a problem.
const TOO_MANY_DEAD_ROWS: i64 = 10_000_000;

/// The number from which they are a warning if the table was not vacuumed for [`LONG_WITHOUT_VACUUM`].
const DEAD_ROWS_TO_VACUUM: i64 = 100_000;

/// In seconds. Autovacuum looks at each table every minute.
const LONG_WITHOUT_VACUUM: f64 = 3_600.0;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct IndexFacts {
    invalid: Vec<String>,
    being_built: Vec<String>,
}

pub(crate) fn check_indexes(facts: &IndexFacts) -> Check {
    const NAME: &str = "indexes";
    let check = if !facts.invalid.is_empty() {
        let drops: Vec<String> =
            facts.invalid.iter().map(|name| format!("DROP INDEX CONCURRENTLY waybill.{name};")).collect();
        Check::problem(
            NAME,
            match facts.invalid.as_slice() {
                [only] => format!("1 index cannot be used: {only}"),
                all => format!("{} indexes cannot be used: {}", all.len(), listed(all)),
            },
            format!("Run {} If a migration made it, waybill migrate builds it again.", drops.join(" ")),
        )
    } else if !facts.being_built.is_empty() {
        Check::warning(
            NAME,
            format!("being built: {}", listed(&facts.being_built)),
            "Wait until it is built: SELECT * FROM pg_stat_progress_create_index;",
        )
    } else {
        Check::ok(NAME, "all indexes can be used")
    };
    check.with(json!({"invalid": facts.invalid, "being_built": facts.being_built}))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TableFacts {
    tables: Vec<TableRows>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct TableRows {
    table: String,
    live_rows: i64,
    dead_rows: i64,
    /// `None` if it was never vacuumed.
    vacuumed_seconds_ago: Option<f64>,
}

impl TableRows {
    /// Returns whether dead rows are a problem (`true`) or a warning, or `None` if there are not too many.
    fn grade(&self) -> Option<bool> {
        if self.dead_rows <= self.live_rows {
            return None;
        }
        let is_overdue = self.vacuumed_seconds_ago.is_none_or(|seconds| seconds > LONG_WITHOUT_VACUUM);
        match self.dead_rows {
            TOO_MANY_DEAD_ROWS.. => Some(true),
            MANY_DEAD_ROWS.. => Some(false),
            DEAD_ROWS_TO_VACUUM.. if is_overdue => Some(false),
            _ => None,
        }
    }
}

pub(crate) fn check_dead_rows(facts: &TableFacts) -> Check {
    const NAME: &str = "dead_rows";
    let bloated: Vec<&TableRows> = facts.tables.iter().filter(|table| table.grade().is_some()).collect();
    let check = if bloated.is_empty() {
        Check::ok(NAME, "no table has too many dead rows")
    } else {
        let described: Vec<String> = bloated
            .iter()
            .map(|table| {
                let vacuumed = match table.vacuumed_seconds_ago {
                    Some(seconds) => format!("vacuumed {} ago", duration(seconds)),
                    None => "never vacuumed".to_owned(),
                };
                format!("{} ({} dead, {vacuumed})", table.table, table.dead_rows)
            })
            .collect();
        let statements: Vec<String> = bloated.iter().map(|table| format!("VACUUM waybill.{};", table.table)).collect();
        Check::graded(
            NAME,
            bloated.iter().any(|table| table.grade() == Some(true)),
            format!("more dead rows than live ones: {}", listed(&described)),
            format!(
                "End what holds them back (the checks of transactions and slots), then run {}",
                statements.join(" ")
            ),
        )
    };
    check.with(json!({ "tables": facts.tables }))
}

/// The locks that reads of the event log need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockFacts {
    pub partitions: i64,
    pub locks_per_read: i64,
    pub capacity: i64,
    /// The number of connections, each of which may read the log.
    pub reads: usize,
    /// The `max_locks_per_transaction` that is needed, if the present one is not enough.
    pub needed: Option<i64>,
}

pub(crate) fn check_locks(facts: &LockFacts) -> Check {
    const NAME: &str = "locks";
    let check = match facts.needed {
        None => Check::ok(NAME, format!("enough locks for {} partitions of the event log", facts.partitions)),
        Some(needed) => Check::warning(
            NAME,
            format!(
                "{} reads of the event log at once need {} locks, and the database has {}",
                facts.reads,
                facts.locks_per_read * facts.reads as i64,
                facts.capacity
            ),
            format!("Run ALTER SYSTEM SET max_locks_per_transaction = {needed}; and restart PostgreSQL."),
        ),
    };
    check.with(json!({
        "partitions": facts.partitions,
        "locks_per_read": facts.locks_per_read,
        "capacity": facts.capacity,
        "needed": facts.needed,
    }))
}

/// Which migrations the database and this server have.
#[derive(Debug, Clone, Default)]
pub(crate) struct SchemaFacts {
    pub pending: Vec<String>,
    /// Migrations that a newer server has applied.
    pub unknown: Vec<String>,
}

pub(crate) fn check_schema(facts: &SchemaFacts) -> Check {
    const NAME: &str = "schema";
    let check = if !facts.pending.is_empty() {
        Check::problem(
            NAME,
            format!("{} missing: {}", some(facts.pending.len() as i64, "migration"), listed(&facts.pending)),
            "Run waybill migrate.",
        )
    } else if !facts.unknown.is_empty() {
        Check::warning(
            NAME,
            format!("a newer version has migrated the database: {}", listed(&facts.unknown)),
            "Upgrade this server to the version of the others.",
        )
    } else {
        Check::ok(NAME, "the schema is that of this version")
    };
    check.with(json!({"pending": facts.pending, "unknown": facts.unknown}))
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartitionFacts {
    this_week: String,
    has_this_week: bool,
    next_week: String,
    has_next_week: bool,
    default_has_rows: bool,
}

pub(crate) fn check_partitions(facts: &PartitionFacts) -> Check {
    const NAME: &str = "partitions";
    const ADVICE: &str =
        "Look in the log for the service maintenance: it makes partitions every ten minutes, and moves the rows there.";
    let check = match (facts.has_this_week, facts.has_next_week, facts.default_has_rows) {
        (false, _, _) => Check::problem(NAME, format!("the event log has no partition {}", facts.this_week), ADVICE),
        (_, false, _) => {
            Check::warning(NAME, format!("the event log has no partition {} yet", facts.next_week), ADVICE)
        }
        (_, _, true) => Check::warning(NAME, "rows of the event log are in no week's partition", ADVICE),
        (true, true, false) => Check::ok(NAME, "the event log has the partitions of this week and the next"),
    };
    check.with(json!({
        "this_week": facts.this_week,
        "next_week": facts.next_week,
        "default_has_rows": facts.default_has_rows,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::CheckStatus;

    fn table(dead_rows: i64, live_rows: i64, vacuumed_seconds_ago: Option<f64>) -> CheckStatus {
        check_dead_rows(&TableFacts {
            tables: vec![TableRows { table: "ready".into(), live_rows, dead_rows, vacuumed_seconds_ago }],
        })
        .status
    }

    #[test]
    fn dead_rows_are_judged_by_their_number_and_the_last_vacuum() {
        assert_eq!(table(999_999, 0, Some(60.0)), CheckStatus::Ok);
        assert_eq!(table(1_000_000, 0, Some(60.0)), CheckStatus::Warning);
        assert_eq!(table(1_000_000, 1_000_000, Some(60.0)), CheckStatus::Ok);
        assert_eq!(table(10_000_000, 0, Some(60.0)), CheckStatus::Problem);
        assert_eq!(table(100_000, 0, Some(3_700.0)), CheckStatus::Warning);
        assert_eq!(table(100_000, 0, None), CheckStatus::Warning);
        assert_eq!(table(99_999, 0, None), CheckStatus::Ok);
    }

    #[test]
    fn an_invalid_index_is_named_with_the_statement_that_drops_it() {
        let check = check_indexes(&IndexFacts { invalid: vec!["a_b".into()], being_built: Vec::new() });
        assert_eq!((check.status, check.summary.as_str()), (CheckStatus::Problem, "1 index cannot be used: a_b"));
        assert!(check.advice.is_some_and(|advice| advice.contains("DROP INDEX CONCURRENTLY waybill.a_b;")));
        let check = check_indexes(&IndexFacts { invalid: vec!["a".into(), "b".into()], being_built: Vec::new() });
        assert_eq!(check.summary, "2 indexes cannot be used: a, b");
        let building = IndexFacts { invalid: Vec::new(), being_built: vec!["a".into()] };
        assert_eq!(check_indexes(&building).status, CheckStatus::Warning);
    }

    #[test]
    fn locks_are_judged_by_what_is_needed() {
        let facts = LockFacts { partitions: 14, locks_per_read: 129, capacity: 1_000, reads: 8, needed: Some(11) };
        let check = check_locks(&facts);
        assert_eq!(check.summary, "8 reads of the event log at once need 1032 locks, and the database has 1000");
        assert!(check.advice.is_some_and(|advice| advice.contains("max_locks_per_transaction = 11;")));
        assert_eq!(check_locks(&LockFacts { needed: None, ..facts }).status, CheckStatus::Ok);
    }

    #[test]
    fn a_missing_migration_is_a_problem_and_one_of_a_newer_version_a_warning() {
        let names = |count: usize| vec!["20261117000001".to_owned(); count];
        let status =
            |pending, unknown| check_schema(&SchemaFacts { pending: names(pending), unknown: names(unknown) }).status;
        assert_eq!(
            [status(0, 0), status(0, 1), status(1, 1)],
            [CheckStatus::Ok, CheckStatus::Warning, CheckStatus::Problem]
        );
    }

    #[test]
    fn the_partition_of_this_week_must_exist_and_that_of_the_next_should() {
        let status = |has_this_week, has_next_week, default_has_rows| {
            let (this_week, next_week) = ("event_log_20261116".into(), "event_log_20261123".into());
            check_partitions(&PartitionFacts { this_week, has_this_week, next_week, has_next_week, default_has_rows })
                .status
        };
        assert_eq!(status(true, true, false), CheckStatus::Ok);
        assert_eq!(status(true, true, true), CheckStatus::Warning);
        assert_eq!(status(true, false, false), CheckStatus::Warning);
        assert_eq!(status(false, true, true), CheckStatus::Problem);
    }
}
