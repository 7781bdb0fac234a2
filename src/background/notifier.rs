//! Tells other servers of new work: one `NOTIFY` at a time, each for all that gathered while
//! the last was under way.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{pause, report};
use crate::engine::Engine;
use crate::engine::waiting::peer_notifier::{Arrivals, PeerNotice};
use crate::error::Error;
use crate::store::connection::notify::notify;

/// PostgreSQL carries 8,000 bytes at most.
const MAX_BYTES: usize = 7_500;

/// The least time between two notifications.
const DEBOUNCE: Duration = Duration::from_millis(5);

/// The time after which one that could not be sent is sent again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What a notification says.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Message {
    /// Which server says it: one does not listen to oneself.
    pub from: String,
    /// Which queues have new work; none: look for yourselves.
    pub queues: Option<Vec<(String, Arrivals)>>,
}

impl Message {
    /// The text on the wire; without the list where that would be too long.
    pub fn text(&self) -> String {
        // Strings and lists of strings always serialise.
        let text = serde_json::to_string(self).unwrap_or_default();
        if text.len() <= MAX_BYTES || self.queues.is_none() {
            return text;
        }
        Message { from: self.from.clone(), queues: None }.text()
    }
}

/// Sends one notification.
pub async fn run_once(engine: &Engine, announcement: PeerNotice) -> Result<(), Error> {
    let queues = match announcement {
        PeerNotice::Queues(queues) => Some(queues),
        PeerNotice::Everything => None,
    };
    let text = Message { from: engine.instance().to_owned(), queues }.text();
    let mut conn = engine.database().connection().await?;
    Ok(notify(&mut conn, &text).await?)
}

/// Repeats until the server stops. Begins by having the others look: a server that was killed, in
/// whose place this one may stand, has perhaps not told them of all that it stored.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    engine.peer_notifier().notify_all_queues();
    while let Some(announcement) = shutdown.run_until_cancelled(engine.peer_notifier().next()).await {
        let mut rest = DEBOUNCE;
        if let Err(error) = run_once(&engine, announcement).await {
            report("notifier", &error);
            engine.peer_notifier().notify_all_queues();
            rest = RETRY_PAUSE;
        }
        if !pause(rest, &shutdown).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_does_not_fit_is_left_out() {
        let message = Message {
            from: "s".into(),
            queues: Some(vec![("t:".to_owned() + &"x".repeat(100), Arrivals::default()); 100]),
        };
        assert_eq!(message.text(), r#"{"from":"s","queues":null}"#);
        let short = Message { from: "s".into(), queues: Some(vec![("t:a".into(), Arrivals::default())]) };
        assert_eq!(serde_json::from_str::<Message>(&short.text()).unwrap(), short);
    }
}
