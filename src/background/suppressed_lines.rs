//! Writes how many lines the log has not got because there were too many of their kind.

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::logging::limiter::{WINDOW, report_suppressed};

/// Runs rounds until the server stops, and a last one then.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service { once_more_at_stop: true, ..Service::every("suppressed lines", WINDOW) };
    service
        .run(engine, shutdown, |_| async {
            report_suppressed();
            Ok(None)
        })
        .await;
}
