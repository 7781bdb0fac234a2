//! Keeps this server's API keys up to date: compares them with the database when a notification says that keys have
//! changed, and once per interval in case one was lost.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, report};
use crate::engine::Engine;
use crate::error::{Error, OutageKind};

/// The time that a round may take. Keys that were not confirmed for long are not trusted any more, so a connection that
/// hangs must not stop the rounds.
const ROUND_WITHIN: Duration = Duration::from_secs(10);

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, interval: Duration, shutdown: CancellationToken) {
    loop {
        let wait = tokio::time::timeout(jittered(interval), engine.keys().changed());
        if shutdown.run_until_cancelled(wait).await.is_none() {
            return;
        }
        match tokio::time::timeout(ROUND_WITHIN, engine.refresh_keys()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => report("key refresher", &error),
            Err(_) => report("key refresher", &Error::outage(OutageKind::TooSlow, "the keys could not be read")),
        }
    }
}
