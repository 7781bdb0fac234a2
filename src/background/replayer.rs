//! Dead letters that somebody wants sent again, many at once, trickle back into the queues.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Service, sweep_all, until_next};
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

/// Runs until the server stops, sleeping until a job goes on.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { at_once: true, ..Service::every("replayer", LONGEST_NAP) };
    service
        .run(engine, shutdown, |engine| async move {
            let swept = sweep_all(|| engine.work_off_replays()).await?;
            Ok(until_next(swept.next_in, SHORTEST_NAP, LONGEST_NAP))
        })
        .await;
}
