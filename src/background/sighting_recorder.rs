//! Who was seen is written down, in one statement every few seconds.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report};
use crate::engine::Engine;

const INTERVAL: Duration = Duration::from_secs(5);

/// Repeats until the server stops, and once more then.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    loop {
        let goes_on = pause(jittered(INTERVAL), &shutdown).await;
        if let Err(error) = engine.record_sightings().await {
            report("sighting_recorder", &error);
        }
        if !goes_on {
            return;
        }
    }
}
