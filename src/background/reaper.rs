//! Leases run out: the work of workers that died goes back to `ready`.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::engine::sweep::SWEEP_ROWS;
use crate::error::Error;

/// Within two seconds is promised; a jittered second keeps it.
const INTERVAL: Duration = Duration::from_secs(1);

/// Takes back everything whose lease has run out; answers how much.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let mut rescued = 0;
    loop {
        let batch = engine.rescue_deliveries().await?;
        rescued += batch;
        if (batch as i64) < SWEEP_ROWS {
            return Ok(rescued);
        }
    }
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
