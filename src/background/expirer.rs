//! Pending work becomes worthless at its `expires_at`.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::engine::sweep::SWEEP_ROWS;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_secs(1);

/// Gives up everything that has expired; answers how much.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    let mut expired = 0;
    loop {
        let batch = engine.expire_deliveries().await?;
        expired += batch;
        if (batch as i64) < SWEEP_ROWS {
            return Ok(expired);
        }
    }
}

/// Repeats until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    while pause(jittered(INTERVAL), &shutdown).await {
        if let Err(error) = run_once(&engine).await {
            report("expirer", &error);
        }
    }
}
