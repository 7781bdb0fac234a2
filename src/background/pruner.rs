//! Dead letters are kept for a while, and then forgotten; so are replays of many that are over.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::dead_letters::forget_dead_letters;
use crate::store::replay_jobs::forget_replay_jobs;

const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Rows that one statement deletes at most.
const ROWS_PER_DELETE: i64 = 500;

/// Forgets all that is older than so many days; answers how many dead letters that was.
pub async fn run_once(engine: &Engine, days: u32) -> Result<usize, Error> {
    let days = i32::try_from(days).unwrap_or(i32::MAX);
    let mut forgotten = 0;
    loop {
        let mut conn = engine.database().connection().await?;
        let letters = forget_dead_letters(&mut conn, engine.now(), days, ROWS_PER_DELETE).await?;
        let jobs = forget_replay_jobs(&mut conn, engine.now(), days, ROWS_PER_DELETE).await?;
        forgotten += letters;
        if letters.max(jobs) < ROWS_PER_DELETE as usize {
            return Ok(forgotten);
        }
    }
}

/// Runs until the server stops.
pub async fn run(engine: Engine, days: u32, shutdown: CancellationToken) {
    let service = Service { at_once: true, ..Service::every("pruner", INTERVAL) };
    service
        .run(engine, shutdown, |engine| async move {
            let deleted = run_once(&engine, days).await?;
            log::debug!(deleted; "old dead letters were deleted");
            Ok(None)
        })
        .await;
}
