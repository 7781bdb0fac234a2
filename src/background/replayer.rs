//! Dead letters that somebody wants sent again, many at once, trickle back into the queues.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report, sweep_all};
use crate::engine::Engine;
use crate::error::Error;

/// The longest nap between two looks.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// The shortest: a replayer must not spin on a job that another server has in hand.
const SHORTEST_NAP: Duration = Duration::from_millis(20);

/// Works off all that is due; answers how many dead letters were sent again.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| engine.work_off_replays()).await?.count)
}

/// Repeats until the server stops, sleeping until a job goes on.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    loop {
        let next_in = match sweep_all(|| engine.work_off_replays()).await {
            Ok(swept) => swept.next_in,
            Err(error) => {
                report("replayer", &error);
                None
            }
        };
        let nap = match next_in {
            Some(seconds) => Duration::from_secs_f64(seconds.clamp(0.0, 1.0)).max(SHORTEST_NAP),
            None => jittered(LONGEST_NAP),
        };
        if !pause(nap, &shutdown).await {
            return;
        }
    }
}
