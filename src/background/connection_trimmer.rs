//! Closes idle connections to the database that are not worth keeping. The pool opens new ones when needed.
//!
//! The buffers of a connection grow to the size of the largest payload and never shrink. And the pool uses the
//! connection that was returned last, so after a peak the others are not used for hours: each keeps memory of
//! PostgreSQL, and a firewall in between may have forgotten it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;

const INTERVAL: Duration = Duration::from_secs(10);

/// Closes idle connections with large buffers, and those that were not used for some minutes.
pub(crate) fn run_once(engine: &Engine) {
    engine.database().close_spare_connections();
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
