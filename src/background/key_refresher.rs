//! Keeps this server's API keys up to date: compares them with the database when a notification says that keys have
//! changed, and once per interval in case one was lost.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, report};
use crate::engine::Engine;

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, interval: Duration, shutdown: CancellationToken) {
    loop {
        let wait = tokio::time::timeout(jittered(interval), engine.keys().changed());
        if shutdown.run_until_cancelled(wait).await.is_none() {
            return;
        }
        if let Err(error) = engine.refresh_keys().await {
            report("key refresher", &error);
        }
    }
}
