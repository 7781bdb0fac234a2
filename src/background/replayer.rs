//! Executes replays of many dead letters at the rate that was requested.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Service, sweep_all, until_next};
use crate::engine::Engine;
use crate::error::Error;

/// The maximum time between two sweeps.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time between two sweeps. Without it the replayer would spin on a job that another server
/// has locked.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Replays all dead letters that are due. Returns their number.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| engine.work_off_replays()).await?.count)
}

/// Runs rounds until the server stops. Sleeps until the next replay is due.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { at_once: true, ..Service::every("replayer", MAX_INTERVAL) };
    service
        .run(engine, shutdown, |engine| async move {
            let swept = sweep_all(|| engine.work_off_replays()).await?;
            Ok(until_next(swept.next_in, MIN_INTERVAL, MAX_INTERVAL))
        })
        .await;
}
