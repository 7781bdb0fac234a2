//! Removes what is older than its retention: [`crate::store::retention`] lists what that is.
//!
//! Small tables are cleaned every few minutes. Events are removed all the time ([`events`]), since they come all the
//! time. Whole weeks of the event log are dropped by the maintenance thread ([`event_log`]).

mod archive;
pub mod event_log;
pub mod events;
mod pace;
mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::domain::retention::Retention;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::retention::{RetentionRule, delete_old_rows, rules};

const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The maximum number of rows that one statement deletes.
const ROWS_PER_DELETE: i64 = 500;

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
    removed.extend(delete_by_rules(engine, settings, &CaughtUp::default()).await?);
    Ok(removed)
}

/// When each table was last cleaned up completely.
struct CaughtUp {
    start: Instant,
    tables: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Default for CaughtUp {
    fn default() -> Self {
        CaughtUp { start: Instant::now(), tables: Mutex::default() }
    }
}

impl CaughtUp {
    fn note(&self, table: &'static str) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).insert(table, Instant::now());
    }

    /// Returns the time since a table was cleaned up, or since the start. No row can be overdue for longer.
    fn lag_seconds(&self, table: &str) -> f64 {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(table).unwrap_or(&self.start).elapsed().as_secs_f64()
    }
}

/// Deletes the old rows of all small tables.
async fn delete_by_rules(
    engine: &Engine,
    settings: &RetentionSettings,
    caught_up: &CaughtUp,
) -> Result<RemovedRows, Error> {
    let mut deleted = BTreeMap::new();
    let mut failure = None;
    // A table whose rows are locked does not keep the others from being cleaned up.
    for rule in rules(settings.dead_letters, settings.log, settings.audit) {
        let lag = match delete_all(engine, &rule).await {
            Ok(rows) => {
                deleted.insert(rule.table, rows);
                caught_up.note(rule.table);
                0.0
            }
            Err(error) => {
                failure = failure.or(Some(error));
                caught_up.lag_seconds(rule.table)
            }
        };
        engine.metrics().set_retention_lag(rule.table, lag);
    }
    failure.map_or(Ok(deleted), Err)
}

/// Deletes in small steps: a busy queue leaves more behind between two rounds than one statement
/// should delete.
async fn delete_all(engine: &Engine, rule: &RetentionRule) -> Result<usize, Error> {
    let mut deleted = 0;
    loop {
        let mut conn = engine.database().connection().await?;
        let rows = delete_old_rows(&mut conn, rule, engine.now(), ROWS_PER_DELETE).await?;
        engine.metrics().count_removed(rule.table, rows as u64);
        deleted += rows;
        if (rows as i64) < ROWS_PER_DELETE {
            return Ok(deleted);
        }
    }
}

/// Cleans up the small tables until the server stops.
pub(crate) async fn run(engine: Engine, settings: RetentionSettings, shutdown: CancellationToken) {
    let caught_up = CaughtUp::default();
    let service = Service { at_once: true, ..Service::every("retention", INTERVAL) };
    service
        .run(engine, shutdown, |engine| {
            let (settings, caught_up) = (&settings, &caught_up);
            async move {
                for (table, rows) in delete_by_rules(&engine, settings, caught_up).await? {
                    log::debug!(table, rows; "old rows were deleted");
                }
                Ok(None)
            }
        })
        .await;
}
