//! Reads new entries of the event log for the streams of `GET /logs/stream`, while there are any.
//!
//! The entries of all servers are in the log, and no notification tells of them, so the log is looked at again and
//! again. A look that finds nothing new is one small statement.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::error::{Error, OutageKind};

/// The time between two looks at the log.
const INTERVAL: Duration = Duration::from_millis(100);

/// The same, if transactions are open whose entries may come next. Most of them take a few milliseconds.
const SHORT_INTERVAL: Duration = Duration::from_millis(25);

/// The time that a round may take. A connection whose other end has vanished says nothing for minutes.
const ROUND_WITHIN: Duration = Duration::from_secs(10);

/// The pause after a look has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Reads what is new. Returns the time until the next round.
async fn run_once(engine: &Engine) -> Result<Duration, Error> {
    let extended = timeout(ROUND_WITHIN, engine.extend_trail()).await;
    let is_settled =
        extended.unwrap_or_else(|_| Err(Error::outage(OutageKind::TooSlow, "the log could not be read")))?;
    Ok(if is_settled { INTERVAL } else { SHORT_INTERVAL })
}

/// Runs until the server stops.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    while shutdown.run_until_cancelled(engine.trail().until_followed()).await.is_some() {
        let wait = match shutdown.run_until_cancelled(run_once(&engine)).await {
            Some(Ok(wait)) => wait,
            Some(Err(error)) => {
                report("log tailer", &error);
                jittered(FAILURE_PAUSE)
            }
            None => return,
        };
        if !pause(wait, &shutdown).await {
            return;
        }
    }
}
