//! Notifies other servers of new work. Sends one `NOTIFY` at a time, for all work that has arrived
//! while the previous one was being sent.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{pause, report};
use crate::engine::Engine;
use crate::engine::waiting::peer_notifier::{Arrivals, PeerNotice};
use crate::error::Error;
use crate::store::connection::notify::notify;

/// The maximum size of a notification. PostgreSQL allows less than 8,000 bytes.
const MAX_BYTES: usize = 7_500;

/// The minimum time between two notifications.
const DEBOUNCE: Duration = Duration::from_millis(5);

/// The pause after a failed notification.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The content of a notification.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Message {
    /// The sending server, which ignores its own notifications.
    pub from: String,
    /// The queues with new work. `None` if the receivers must scan all their queues.
    pub queues: Option<Vec<(String, Arrivals)>>,
}

impl Message {
    /// Returns the message as JSON, without the list of queues if it would be too long.
    pub(crate) fn text(&self) -> String {
        // Strings and lists of strings always serialise.
        let text = serde_json::to_string(self).unwrap_or_default();
        if text.len() <= MAX_BYTES || self.queues.is_none() {
            return text;
        }
        Message { from: self.from.clone(), queues: None }.text()
    }
}

/// Sends one notification.
pub(crate) async fn run_once(engine: &Engine, notice: PeerNotice) -> Result<(), Error> {
    let queues = match notice {
        PeerNotice::Queues(queues) => Some(queues),
        PeerNotice::Everything => None,
    };
    let text = Message { from: engine.instance().to_owned(), queues }.text();
    let mut conn = engine.database().connection().await?;
    Ok(notify(&mut conn, &text).await?)
}

/// Sends notifications until the server stops. The first one makes the other servers scan all their
/// queues: this server may replace one that was killed before it had sent all its notifications.
pub(crate) async fn run(engine: Engine, shutdown: CancellationToken) {
    engine.peer_notifier().notify_all_queues();
    while let Some(notice) = shutdown.run_until_cancelled(engine.peer_notifier().next()).await {
        let mut wait = DEBOUNCE;
        if let Err(error) = run_once(&engine, notice).await {
            report("notifier", &error);
            engine.peer_notifier().notify_all_queues();
            wait = RETRY_PAUSE;
        }
        if !pause(wait, &shutdown).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_does_not_fit_is_omitted() {
        let message = Message {
            from: "s".into(),
            queues: Some(vec![("t:".to_owned() + &"x".repeat(100), Arrivals::default()); 100]),
        };
        assert_eq!(message.text(), r#"{"from":"s","queues":null}"#);
        let short = Message { from: "s".into(), queues: Some(vec![("t:a".into(), Arrivals::default())]) };
        assert_eq!(serde_json::from_str::<Message>(&short.text()).unwrap(), short);
    }
}
