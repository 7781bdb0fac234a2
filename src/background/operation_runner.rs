//! Runs the steps of operations at the rates that were requested.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{jittered, report, sweep_all, until_next};
use crate::engine::Engine;
use crate::engine::sweep::SweepOutcome;
use crate::error::Error;

/// The maximum time between two rounds, and so the time after which an operation that another server has
/// started is noticed.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time between two rounds. Without it the runner would spin on an operation that another server
/// has locked.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Runs all steps that are due. Returns the number of deliveries and dead letters that were dealt with.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| run_step(engine)).await?.count)
}

/// Runs one step. Searches that find nothing are not paced by the rate of their operation, so workers come first.
async fn run_step(engine: &Engine) -> Result<SweepOutcome, Error> {
    let began = Instant::now();
    let swept = engine.run_operations().await?;
    if swept.more {
        engine.yield_to_workers(began.elapsed()).await;
    }
    Ok(swept)
}

/// Runs rounds until the server stops. Sleeps until the next step is due or an operation is started here.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            () = engine.operation_started().notified() => {}
        }
        // A server that stops finishes the step that is running, and begins no other.
        let step = || async {
            match shutdown.is_cancelled() {
                true => Ok(SweepOutcome { count: 0, more: false, next_in: None }),
                false => run_step(&engine).await,
            }
        };
        let swept = sweep_all(step).await.inspect_err(|error| report("operation runner", error));
        let next_in = swept.ok().and_then(|swept| swept.next_in);
        wait = until_next(next_in, MIN_INTERVAL, MAX_INTERVAL).unwrap_or_else(|| jittered(MAX_INTERVAL));
    }
}
