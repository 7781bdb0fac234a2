//! Cancels the open deliveries of deleted subscriptions.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;

const INTERVAL: Duration = Duration::from_secs(1);

/// Cancels all of them.
pub async fn run_once(engine: &Engine) -> Result<(), Error> {
    while engine.drain_subscriptions().await? {}
    Ok(())
}

/// Runs rounds until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("subscription drainer", INTERVAL);
    service.run(engine, shutdown, |engine| async move { run_once(&engine).await.map(|()| None) }).await;
}
