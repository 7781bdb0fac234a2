//! Leases run out: the work of workers that died goes back to `ready`.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report, sweep_all};
use crate::engine::Engine;
use crate::error::Error;

/// Within two seconds is promised; a jittered second keeps it.
const INTERVAL: Duration = Duration::from_secs(1);

/// Takes back everything whose lease has run out; answers how much.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| engine.rescue_deliveries()).await?.count)
}

/// Repeats until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    while pause(jittered(INTERVAL), &shutdown).await {
        match run_once(&engine).await {
            Ok(0) => {}
            Ok(rescued) => log::info!(rescued; "leases ran out; their work was taken back"),
            Err(error) => report("reaper", &error),
        }
    }
}
