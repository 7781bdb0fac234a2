//! Frees the memory that large payloads have taken.
//!
//! The buffers of a database connection grow to the size of the largest payload and never shrink.
//! Idle connections with large buffers are therefore closed. The pool opens new ones when needed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;

const INTERVAL: Duration = Duration::from_secs(10);

/// Closes idle connections with large buffers.
pub(crate) fn run_once(engine: &Engine) {
    engine.database().close_large_connections();
}

/// Runs rounds until the server stops.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("connection trimmer", INTERVAL);
    service
        .run(engine, shutdown, |engine| async move {
            run_once(&engine);
            Ok(None)
        })
        .await;
}
