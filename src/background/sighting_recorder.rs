//! Stores which workers were seen, in one statement every few seconds.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;

const INTERVAL: Duration = Duration::from_secs(5);

/// Runs rounds until the server stops, and a last one then.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { once_more_at_stop: true, ..Service::every("sighting recorder", INTERVAL) };
    service.run(engine, shutdown, |engine| async move { engine.record_sightings().await.map(|_| None) }).await;
}
