//! Checks regularly whether the database has gone back in time. This happens when a backup is
//! restored or a standby is promoted. Open connections may survive it, for example those to a pooler.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;

/// New connections are checked when they are opened, so this is for the open ones.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("history checker", INTERVAL);
    service.run(engine, shutdown, |engine| async move { engine.check_history().await.map(|()| None) }).await;
}
