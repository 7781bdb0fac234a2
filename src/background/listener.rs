//! Receives the notifications of other servers, on a connection of its own.
//!
//! Most notifications are about new work. One is sent by a server that has noticed a restore of the
//! database, and one with every change of an API key or of a source. When the connection is lost, it is opened again, and
//! all queues are scanned once because notifications may have been missed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::notifier::Message;
use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::connection::notify::listen;
use crate::store::tables::api_keys::KEYS_NOTICE;
use crate::store::tables::histories::NOTICE;
use crate::store::tables::sources::SOURCES_NOTICE;

/// The pause between two attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Listens until the connection is lost.
pub(crate) async fn run_once(engine: &Engine) -> Result<(), Error> {
    let mut listening = engine.database().dedicated().await?;
    engine.database().history_watch().check(&mut listening.connection).await?;
    listen(&mut listening.connection).await?;
    engine.scan_all_queues();
    engine.keys().note_change();
    engine.sources().note_change();
    while let Some(text) = listening.notifications.recv().await {
        match text.as_str() {
            NOTICE => engine.check_history().await?,
            KEYS_NOTICE => engine.keys().note_change(),
            SOURCES_NOTICE => engine.sources().note_change(),
            _ => receive(engine, &text),
        }
    }
    Err(Error::unavailable("the listening connection was closed".into()))
}

/// Handles a notification about new work.
fn receive(engine: &Engine, text: &str) {
    match serde_json::from_str::<Message>(text) {
        Ok(message) if message.from == engine.instance() => {}
        Ok(Message { queues: Some(queues), .. }) => {
            for (queue, arrivals) in queues {
                engine.note_arrivals(&queue, arrivals);
            }
        }
        // The sender listed no queues, or it has a version whose messages differ.
        Ok(Message { queues: None, .. }) | Err(_) => engine.scan_all_queues(),
    }
}

/// Listens, and reconnects, until the server stops.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    while let Some(ended) = shutdown.run_until_cancelled(run_once(&engine)).await {
        if let Err(error) = ended {
            report("listener", &error);
        }
        if !pause(jittered(RECONNECT_PAUSE), &shutdown).await {
            return;
        }
    }
}
