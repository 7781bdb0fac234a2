//! Delayed and retrying work falls due.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report, sweep_all};
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

/// Repeats until the server stops, sleeping until the next delivery falls due.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    loop {
        let next_in = match sweep_all(|| engine.promote_deliveries()).await {
            // What has just been promoted is not what comes next.
            Ok(swept) if swept.count > 0 => Some(0.0),
            Ok(swept) => swept.next_in,
            Err(error) => {
                report("promoter", &error);
                None
            }
        };
        let nap = match next_in {
            Some(seconds) => Duration::from_secs_f64(seconds.clamp(0.0, 1.0)).max(SHORTEST_NAP),
            None => jittered(LONGEST_NAP),
        };
        if !pause(nap.min(LONGEST_NAP), &shutdown).await {
            return;
        }
    }
}
