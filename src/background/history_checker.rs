//! Asks now and then whether the database has gone back: a backup was restored, or a standby
//! promoted, behind a pooler that keeps our connections open, or under connections of ours.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;

/// New connections are asked at once, so this is for those that stay.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("history checker", INTERVAL);
    service.run(engine, shutdown, |engine| async move { engine.check_history().await.map(|_| None) }).await;
}
