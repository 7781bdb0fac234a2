//! Renews what this server knows about the limits of namespaces and keys: every second, and earlier if a namespace may be
//! near a limit that is counted.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_secs(1);

/// The shortest pause between two rounds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// The pause after a round is at least this many times as long as the round.
const PAUSE_FACTOR: u32 = 20;

/// Renews it once.
pub async fn run_once(engine: &Engine) -> Result<(), Error> {
    engine.refresh_limits().await
}

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    loop {
        let began = Instant::now();
        if let Err(error) = run_once(&engine).await {
            report("limit refresher", &error);
            if !pause(jittered(INTERVAL), &shutdown).await {
                return;
            }
            continue;
        }
        let shortest = SHORTEST_PAUSE.max(began.elapsed() * PAUSE_FACTOR);
        if !pause(shortest, &shutdown).await {
            return;
        }
        let rest = jittered(INTERVAL).saturating_sub(shortest);
        let wait = tokio::time::timeout(rest, engine.limit_use().count_needed());
        if shutdown.run_until_cancelled(wait).await.is_none() {
            return;
        }
    }
}
