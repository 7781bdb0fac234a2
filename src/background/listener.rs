//! Hears other servers tell of new work, on a connection of its own. When the connection is
//! lost it is opened again, and everybody who waits looks once, since words were missed. Another
//! server that has noticed that the database was restored tells so here, too.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::notifier::Message;
use super::{jittered, pause, report};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::connection::notify::listen;
use crate::store::tables::histories::NOTICE;

/// Between two tries to reach a database that is away.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Listens until the connection is lost.
pub async fn run_once(engine: &Engine) -> Result<(), Error> {
    let mut listening = engine.database().dedicated().await?;
    engine.database().history_watch().check(&mut listening.connection).await?;
    listen(&mut listening.connection).await?;
    engine.scan_all_queues();
    while let Some(text) = listening.notifications.recv().await {
        match text == NOTICE {
            true => engine.check_history().await?,
            false => hear(engine, &text),
        }
    }
    Err(Error::unavailable("the listening connection was closed".into()))
}

fn hear(engine: &Engine, text: &str) {
    match serde_json::from_str::<Message>(text) {
        Ok(message) if message.from == engine.instance() => {}
        Ok(Message { queues: Some(queues), .. }) => {
            for (queue, arrivals) in queues {
                engine.note_arrivals(&queue, arrivals);
            }
        }
        // Everything, or the word of a version that we do not understand.
        Ok(Message { queues: None, .. }) | Err(_) => engine.scan_all_queues(),
    }
}

/// Repeats until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    while let Some(ended) = shutdown.run_until_cancelled(run_once(&engine)).await {
        if let Err(error) = ended {
            report("listener", &error);
        }
        if !pause(jittered(RECONNECT_PAUSE), &shutdown).await {
            return;
        }
    }
}
