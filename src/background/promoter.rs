//! Delayed and retrying work falls due.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Service, sweep_all, until_next};
use crate::engine::Engine;
use crate::error::Error;

/// The longest nap between two looks.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// The shortest: a promoter must not spin on work that another server is just promoting.
const SHORTEST_NAP: Duration = Duration::from_millis(20);

/// Promotes all that is due; answers how much.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| engine.promote_deliveries()).await?.count)
}

/// Runs until the server stops, sleeping until the next delivery falls due.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { at_once: true, ..Service::every("promoter", LONGEST_NAP) };
    service
        .run(engine, shutdown, |engine| async move {
            let swept = sweep_all(|| engine.promote_deliveries()).await?;
            // What has just been promoted is not what comes next.
            let next_in = if swept.count > 0 { Some(0.0) } else { swept.next_in };
            Ok(until_next(next_in, SHORTEST_NAP, LONGEST_NAP))
        })
        .await;
}
