//! Stores what this server has done, in one statement every few seconds.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_secs(10);

/// Stores what was counted since the last round. Returns the number of rows.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    engine.record_stats().await
}

/// Runs rounds until the server stops, and a last one then.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { once_more_at_stop: true, ..Service::every("stats recorder", INTERVAL) };
    service.run(engine, shutdown, |engine| async move { run_once(&engine).await.map(|_| None) }).await;
}
