//! Stores which settlements were refused, in one statement every few seconds.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;

const INTERVAL: Duration = Duration::from_secs(2);

/// Runs rounds until the server stops, and a last one then.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { once_more_at_stop: true, ..Service::every("refused settlement recorder", INTERVAL) };
    service
        .run(engine, shutdown, |engine| async move { engine.record_refused_settlements().await.map(|_| None) })
        .await;
}
