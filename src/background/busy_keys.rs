//! Sweeps overdue deliveries of ordering keys that are always in use.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_millis(500);

/// Sweeps once. Returns the number of changed deliveries.
pub async fn run_once(engine: &Engine, auto_reset: bool) -> Result<usize, Error> {
    engine.sweep_busy_keys(auto_reset).await
}

/// Runs rounds until the server stops.
pub async fn run(engine: Engine, auto_reset: bool, shutdown: CancellationToken) {
    let service = Service::every("busy keys", INTERVAL);
    service.run(engine, shutdown, |engine| async move { run_once(&engine, auto_reset).await.map(|_| None) }).await;
}
