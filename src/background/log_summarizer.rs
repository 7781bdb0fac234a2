//! Summarizes the newest blocks of the event log.
//!
//! Lists of log entries skip the blocks that cannot have what they look for. Blocks without a summary
//! cannot be skipped, and autovacuum adds summaries only about once a minute: a busy server would have
//! thousands of blocks that every list must read.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::log_partitions::summarize_log;

const INTERVAL: Duration = Duration::from_secs(5);

/// Summarizes the newest blocks. Returns the number of new summaries.
pub async fn run_once(engine: &Engine) -> Result<i64, Error> {
    let mut conn = engine.database().connection().await?;
    Ok(summarize_log(&mut conn, engine.now()).await?)
}

/// Runs until the server stops.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    let service = Service::every("log summarizer", INTERVAL);
    service
        .run(engine, shutdown, |engine| async move {
            run_once(&engine).await?;
            Ok(None)
        })
        .await;
}
