//! Memory that large payloads have taken is given back.
//!
//! A connection to the database keeps buffers as large as what it has carried, so connections that
//! have carried much are closed when they are at rest, and opened anew when they are needed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;

const INTERVAL: Duration = Duration::from_secs(10);

/// Closes connections that keep large buffers.
pub fn run_once(engine: &Engine) {
    engine.database().close_large();
}

/// Runs until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("connection trimmer", INTERVAL);
    service
        .run(engine, shutdown, |engine| async move {
            run_once(&engine);
            Ok(None)
        })
        .await;
}
