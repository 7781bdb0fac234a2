//! Keeps this server's sources up to date: compares them with the database when a notification says that sources have
//! changed, and once per interval in case one was lost.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, report};
use crate::engine::Engine;

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, interval: Duration, shutdown: CancellationToken) {
    loop {
        let wait = tokio::time::timeout(jittered(interval), engine.sources().changed());
        let Some(wait) = shutdown.run_until_cancelled(wait).await else { return };
        // What is not in memory cannot be outdated. But after a notification, a look-up may be about to add what it has
        // read before the change.
        if wait.is_err() && engine.sources().is_empty() {
            continue;
        }
        if let Err(error) = engine.refresh_sources().await {
            report("source refresher", &error);
        }
    }
}
