//! Memory that large payloads have taken is given back.
//!
//! A connection to the database keeps buffers as large as what it has carried, so connections that
//! have carried much are closed when they are at rest, and opened anew when they are needed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause};
use crate::engine::Engine;

const INTERVAL: Duration = Duration::from_secs(10);

/// Closes connections that keep large buffers.
pub fn run_once(engine: &Engine) {
    engine.database().close_large();
}

/// Repeats until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    while pause(jittered(INTERVAL), &shutdown).await {
        run_once(&engine);
    }
}
