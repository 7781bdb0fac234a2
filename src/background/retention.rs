//! Deletes old rows: [`crate::store::retention`] lists the tables.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::retention::{RetentionRule, delete_old_rows, rules};

const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The maximum number of rows that one statement deletes.
const ROWS_PER_DELETE: i64 = 500;

/// Deletes all rows that are older than their table's retention. Returns how many, by table.
pub async fn run_once(engine: &Engine, dead_letter_days: u32) -> Result<BTreeMap<&'static str, usize>, Error> {
    let dead_letter_days = i32::try_from(dead_letter_days).unwrap_or(i32::MAX);
    let mut deleted = BTreeMap::new();
    let mut failure = None;
    // A table whose rows are locked does not keep the others from being cleaned up.
    for rule in rules(dead_letter_days) {
        match delete_all(engine, &rule).await {
            Ok(rows) => drop(deleted.insert(rule.table, rows)),
            Err(error) => failure = failure.or(Some(error)),
        }
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
        deleted += rows;
        if (rows as i64) < ROWS_PER_DELETE {
            return Ok(deleted);
        }
    }
}

/// Runs until the server stops.
pub async fn run(engine: Engine, dead_letter_days: u32, shutdown: CancellationToken) {
    let service = Service { at_once: true, ..Service::every("retention", INTERVAL) };
    service
        .run(engine, shutdown, |engine| async move {
            for (table, rows) in run_once(&engine, dead_letter_days).await? {
                log::debug!(table, rows; "old rows were deleted");
            }
            Ok(None)
        })
        .await;
}
