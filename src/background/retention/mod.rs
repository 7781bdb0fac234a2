//! Removes what is older than its retention: [`crate::store::retention`] lists what that is.
//!
//! Small tables are cleaned every few minutes. Events are removed all the time ([`events`]), since they come all the
//! time. Whole weeks of the event log are dropped by the maintenance thread ([`event_log`]).

mod archive;
pub mod event_log;
pub mod events;
mod limited;
mod pace;
mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use tokio_util::sync::CancellationToken;

use super::{Service, report};
use crate::domain::retention::Retention;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::retention::{RetentionRule, delete_old_rows, rules};
use limited::{Removal, take_step};
use pace::StepRows;

/// The name of the service in the log.
const SERVICE: &str = "retention";

const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// For how long a table rests that has failed. Its steps may hold others up for seconds, so it must not be tried in each of
/// the rounds that other tables need.
const REST_OF_FAILURE: Duration = Duration::from_secs(5 * 60);

/// The time after which it is the next table's turn, however many old rows are left, and the pause before the next round
/// if there are any.
const TURN_TIME: Duration = Duration::from_secs(10);
const PAUSE_BETWEEN_TURNS: Duration = Duration::from_secs(1);

/// For how long everything is kept that an operator can set.
#[derive(Debug, Clone)]
pub struct RetentionSettings {
    /// Finished events, with their deliveries.
    pub events: Retention,
    /// The event log, and subscriptions that were deleted.
    pub log: Retention,
    pub dead_letters: Retention,
    pub audit: Retention,
    /// The directory to which partitions of the event log are written before they are dropped.
    pub archive_dir: Option<PathBuf>,
}

impl RetentionSettings {
    /// Returns why a server cannot work with these settings, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        if self.log < self.events {
            return Err(format!(
                "--log-retention {} is shorter than --retention {}: the list of completed events and the trail of an \
                 event are read from the log; keep the log at least as long as events",
                self.log, self.events
            ));
        }
        let Some(dir) = &self.archive_dir else { return Ok(()) };
        archive::check_dir(dir).map_err(|error| format!("--archive-dir {}: {error}", dir.display()))
    }
}

/// The number of removed rows by table.
pub type RemovedRows = BTreeMap<&'static str, usize>;

/// Removes everything that is older than its retention, except for the event log. Returns what was removed.
pub async fn run_once(engine: &Engine, settings: &RetentionSettings) -> Result<RemovedRows, Error> {
    let mut removed = events::run_once(engine, settings.events).await?;
    let (caught_up, mut failure) = (CaughtUp::default(), None);
    loop {
        let round = delete_by_rules(engine, settings, &caught_up).await;
        for (table, rows) in round.removed {
            *removed.entry(table).or_default() += rows;
        }
        failure = failure.or(round.failure);
        if !round.has_more {
            return failure.map_or(Ok(removed), Err);
        }
    }
}

/// A round over all small tables.
#[derive(Debug, Default)]
struct Round {
    removed: RemovedRows,
    /// Whether a table that can be cleaned up has old rows left.
    has_more: bool,
    /// The first failure. It does not keep the other tables from their turns.
    failure: Option<Error>,
}

impl Round {
    /// Adds the turn of one table: how many rows were deleted, and whether more are left. Returns whether there may be.
    fn add(&mut self, table: &'static str, turn: Result<(usize, bool), Error>) -> bool {
        match turn {
            Ok((rows, has_more)) => {
                self.removed.insert(table, rows);
                self.has_more |= has_more;
                has_more
            }
            Err(error) => {
                self.failure = self.failure.take().or(Some(error));
                true
            }
        }
    }

    /// Returns the time until the next round, or `None` if it is the usual one.
    fn until_next(self) -> Result<Option<Duration>, Error> {
        match self.failure {
            Some(error) if !self.has_more => return Err(error),
            // The service waits after an error, and the tables that have more do not.
            Some(error) => report(SERVICE, &error),
            None => {}
        }
        Ok(self.has_more.then_some(PAUSE_BETWEEN_TURNS))
    }
}

/// When each table was last cleaned up completely, and when it has failed.
pub(crate) struct CaughtUp {
    start: Instant,
    tables: Mutex<BTreeMap<&'static str, Instant>>,
    failures: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Default for CaughtUp {
    fn default() -> Self {
        CaughtUp { start: Instant::now(), tables: Mutex::default(), failures: Mutex::default() }
    }
}

impl CaughtUp {
    /// Records that a table is clean. Returns its lag.
    fn note(&self, table: &'static str) -> f64 {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).insert(table, Instant::now());
        0.0
    }

    /// Returns the time since a table was cleaned up, or since the start. No row can be overdue for longer.
    fn lag_seconds(&self, table: &str) -> f64 {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(table).unwrap_or(&self.start).elapsed().as_secs_f64()
    }

    /// Records that a table has failed.
    fn note_failure(&self, table: &'static str) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).insert(table, Instant::now());
    }

    /// Returns whether a table has failed recently, and rests.
    fn rests(&self, table: &str) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(table).is_some_and(|failed_at| failed_at.elapsed() < REST_OF_FAILURE)
    }
}

/// Deletes the old rows of all small tables.
async fn delete_by_rules(engine: &Engine, settings: &RetentionSettings, caught_up: &CaughtUp) -> Round {
    let mut round = Round::default();
    // A table whose rows are locked, or are too many, does not keep the others from being cleaned up.
    for rule in rules(settings.dead_letters, settings.log, settings.audit) {
        let may_have_more = if caught_up.rests(rule.table) {
            true
        } else {
            let turn = delete_in_turn(engine, &rule).await;
            if turn.is_err() {
                caught_up.note_failure(rule.table);
            }
            round.add(rule.table, turn)
        };
        let lag = if may_have_more { caught_up.lag_seconds(rule.table) } else { caught_up.note(rule.table) };
        engine.metrics().set_retention_lag(rule.table, lag);
    }
    round
}

/// Deletes in small steps: a busy queue leaves more behind between two rounds than one statement should delete. Returns
/// the number of rows, and whether more are left.
async fn delete_in_turn(engine: &Engine, rule: &RetentionRule) -> Result<(usize, bool), Error> {
    let (began, mut deleted, mut step_rows) = (Instant::now(), 0, StepRows::default());
    let old_rows = OldRows { rule, now: engine.now() };
    while began.elapsed() < TURN_TIME {
        let mut conn = engine.database().connection().await?;
        let (rows, max_rows) = take_step(&mut conn, &mut step_rows, &old_rows).await?;
        engine.metrics().count_removed(rule.table, rows as u64);
        deleted += rows;
        // Rows that are in use are skipped, so a step that has deleted a little less than it might is not the last.
        if (rows as i64) < max_rows / 2 {
            return Ok((deleted, false));
        }
    }
    Ok((deleted, true))
}

/// The old rows of a small table.
struct OldRows<'a> {
    rule: &'a RetentionRule,
    now: Option<DateTime<Utc>>,
}

impl Removal for OldRows<'_> {
    /// How many rows were deleted, of how many at most.
    type Removed = (usize, i64);

    async fn remove(&self, conn: &mut AsyncPgConnection, max_rows: i64) -> QueryResult<(usize, i64)> {
        Ok((delete_old_rows(conn, self.rule, self.now, max_rows).await?, max_rows))
    }

    fn rows_of((rows, _): &(usize, i64)) -> i64 {
        *rows as i64
    }
}

/// Cleans up the small tables until the server stops.
pub(crate) async fn run(engine: Engine, settings: RetentionSettings, shutdown: CancellationToken) {
    let caught_up = CaughtUp::default();
    let service = Service { at_once: true, ..Service::every(SERVICE, INTERVAL) };
    service
        .run(engine, shutdown, |engine| {
            let (settings, caught_up) = (&settings, &caught_up);
            async move {
                let round = delete_by_rules(&engine, settings, caught_up).await;
                for (table, rows) in &round.removed {
                    log::debug!(table = *table, rows = *rows; "old rows were deleted");
                }
                round.until_next()
            }
        })
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Result<(usize, bool), Error> {
        Err(Error::Internal("a locked row".to_owned()))
    }

    #[test]
    fn a_table_that_fails_does_not_make_those_with_more_wait_for_the_next_round() {
        let mut round = Round::default();
        assert!(round.add("audit_log", failed()), "it may have more");
        assert!(round.add("dead_letters", Ok((500, true))));
        assert!(!round.add("workers", Ok((0, false))));
        assert_eq!(round.until_next().expect("the failure is reported"), Some(PAUSE_BETWEEN_TURNS));
    }

    #[test]
    fn a_table_that_has_failed_rests_while_the_others_go_on() {
        let caught_up = CaughtUp::default();
        caught_up.note_failure("audit_log");
        assert!(caught_up.rests("audit_log") && !caught_up.rests("workers"));
        let mut failures = caught_up.failures.lock().expect("no panic");
        failures.values_mut().for_each(|failed_at| *failed_at -= REST_OF_FAILURE);
        drop(failures);
        assert!(!caught_up.rests("audit_log"));
    }

    #[test]
    fn a_round_after_which_only_failed_tables_have_more_fails() {
        let mut round = Round::default();
        round.add("audit_log", failed());
        round.add("workers", Ok((1, false)));
        round.until_next().expect_err("the service waits");
    }
}
