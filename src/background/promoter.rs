//! Makes delayed deliveries and retries ready when they are due.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Service, sweep_all, until_next};
use crate::engine::Engine;
use crate::error::Error;

/// The maximum time between two sweeps.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time between two sweeps. Without it the promoter would spin on deliveries that another
/// server is promoting.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Promotes all due deliveries. Returns their number.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| engine.promote_deliveries()).await?.count)
}

/// Runs rounds until the server stops. Sleeps until the next delivery is due.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { at_once: true, ..Service::every("promoter", MAX_INTERVAL) };
    service
        .run(engine, shutdown, |engine| async move {
            let swept = sweep_all(|| engine.promote_deliveries()).await?;
            // After promotions `next_in` may still refer to a promoted delivery, so sweep again soon.
            let next_in = if swept.count > 0 { Some(0.0) } else { swept.next_in };
            Ok(until_next(next_in, MIN_INTERVAL, MAX_INTERVAL))
        })
        .await;
}
