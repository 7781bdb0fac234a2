//! Notifies other servers of new work. Sends notifications in one statement at a time, for all work that has arrived
//! while the previous one was being sent.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{pause, report};
use crate::engine::Engine;
use crate::engine::waiting::peer_notifier::{Arrivals, PeerNotice};
use crate::error::Error;
use crate::store::connection::notify::notify;
use crate::store::tables::ready::QueueKey;

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
    pub queues: Option<Vec<(QueueKey, Arrivals)>>,
}

impl Message {
    /// Returns the message as JSON, in several parts if its list of queues is too long for one.
    pub(crate) fn texts(mut self) -> Vec<String> {
        // Strings and lists of strings always serialise.
        let text = serde_json::to_string(&self).unwrap_or_default();
        let Some(queues) = self.queues.as_mut().filter(|_| text.len() > MAX_BYTES) else { return vec![text] };
        if queues.len() < 2 {
            return Message { queues: None, ..self }.texts();
        }
        let second = queues.split_off(queues.len() / 2);
        let second = Message { from: self.from.clone(), queues: Some(second) };
        self.texts().into_iter().chain(second.texts()).collect()
    }
}

/// Sends one notification.
pub(crate) async fn run_once(engine: &Engine, notice: PeerNotice) -> Result<(), Error> {
    let queues = match notice {
        PeerNotice::Queues(queues) => Some(queues),
        PeerNotice::Everything => None,
    };
    let texts = Message { from: engine.instance().to_owned(), queues }.texts();
    let mut conn = engine.database().connection().await?;
    Ok(notify(&mut conn, &texts).await?)
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
    use crate::domain::ids::NamespaceId;

    #[test]
    fn a_list_that_does_not_fit_is_sent_in_parts() {
        let queue = |n: i32| (QueueKey::of_tag(NamespaceId(n), &"x".repeat(100)), Arrivals::default());
        let queues: Vec<_> = (1..=100).map(queue).collect();
        let texts = Message { from: "s".into(), queues: Some(queues.clone()) }.texts();
        assert!(texts.len() > 1 && texts.iter().all(|text| text.len() <= MAX_BYTES), "{}", texts.len());
        let parts = texts.iter().map(|text| serde_json::from_str::<Message>(text).unwrap().queues.unwrap());
        assert_eq!(parts.flatten().collect::<Vec<_>>(), queues);
    }

    #[test]
    fn a_queue_whose_name_does_not_fit_becomes_everything() {
        let queue = QueueKey::of_tag(NamespaceId::DEFAULT, &"x".repeat(MAX_BYTES));
        let message = Message { from: "s".into(), queues: Some(vec![(queue, Arrivals::default())]) };
        assert_eq!(message.texts(), [r#"{"from":"s","queues":null}"#]);
    }
}
