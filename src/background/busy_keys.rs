//! Sweeps the overdue work of ordering keys that are always in use.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_millis(500);

/// Sweeps once; returns the number of deliveries that were changed.
pub async fn run_once(engine: &Engine, auto_reset: bool) -> Result<usize, Error> {
    engine.sweep_busy_keys(auto_reset).await
}

/// Repeats until the server stops.
pub async fn run(engine: Engine, auto_reset: bool, shutdown: CancellationToken) {
    while pause(jittered(INTERVAL), &shutdown).await {
        if let Err(error) = run_once(&engine, auto_reset).await {
            report("busy keys", &error);
        }
    }
}
