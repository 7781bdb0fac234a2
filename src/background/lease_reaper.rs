//! Leases run out: the work of workers that died goes back to `ready`.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Service, sweep_all};
use crate::engine::Engine;
use crate::error::Error;

/// Within two seconds is promised; a jittered second keeps it.
const INTERVAL: Duration = Duration::from_secs(1);

/// Takes back everything whose lease has run out; answers how much.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| engine.reset_expired_leases()).await?.count)
}

/// Where leases are not reset by themselves: only forgets what has been settled.
pub async fn tidy_once(engine: &Engine) -> Result<(), Error> {
    sweep_all(|| engine.tidy_leases()).await.map(drop)
}

/// Runs until the server stops.
pub async fn run(engine: Engine, auto_reset: bool, shutdown: CancellationToken) {
    let service = Service::every("lease reaper", INTERVAL);
    service
        .run(engine, shutdown, |engine| async move {
            let reset = if auto_reset { run_once(&engine).await? } else { tidy_once(&engine).await.map(|()| 0)? };
            if reset > 0 {
                log::info!(reset; "leases ran out; their work was reset");
            }
            Ok(None)
        })
        .await;
}
