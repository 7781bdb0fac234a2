//! Returns deliveries whose lease has expired to `ready`, for example if their worker died.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Service, sweep_all};
use crate::engine::Engine;
use crate::error::Error;

/// The documentation promises a reset within 2 seconds. A jittered second keeps that promise.
const INTERVAL: Duration = Duration::from_secs(1);

/// Resets all deliveries whose lease has expired. Returns their number.
pub async fn run_once(engine: &Engine) -> Result<usize, Error> {
    Ok(sweep_all(|| engine.reset_expired_leases()).await?.count)
}

/// Removes settled deliveries from the list of leases, and resets expired pushes. For servers that do
/// not reset the leases of workers.
pub async fn tidy_once(engine: &Engine) -> Result<(), Error> {
    sweep_all(|| engine.tidy_leases()).await.map(drop)
}

/// Runs rounds until the server stops.
pub async fn run(engine: Engine, auto_reset: bool, shutdown: CancellationToken) {
    let service = Service::every("lease reaper", INTERVAL);
    service
        .run(engine, shutdown, |engine| async move {
            let reset = if auto_reset { run_once(&engine).await? } else { tidy_once(&engine).await.map(|()| 0)? };
            if reset > 0 {
                log::debug!(reset; "expired leases were reset");
            }
            Ok(None)
        })
        .await;
}
