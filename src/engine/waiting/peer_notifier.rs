//! Notifications for other servers: which queues have new deliveries.
//!
//! Nothing is sent from this module. The names of queues are collected until the background notifier
//! takes them. However many events are published, there is one `NOTIFY` at a time, and it runs outside
//! of the publishers' transactions, because a `NOTIFY` takes a global lock at commit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::engine::waiting::low_water_marks::QueuePosition;
use crate::store::tables::ready::QueueKey;

/// The maximum number of queues in a notification. If there are more, other servers scan all queues.
const MAX_NAMES: usize = 1_000;

/// The deliveries that have entered a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// The first position among them.
    pub first: QueuePosition,
    /// The number of deliveries.
    pub count: usize,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { first: QueuePosition::END, count: 0 }
    }
}

impl Arrivals {
    /// Adds further arrivals in the same queue.
    pub fn add(&mut self, other: Arrivals) {
        self.first = self.first.min(other.first);
        self.count += other.count;
    }
}

/// Collects the queues that other servers must be notified about.
#[derive(Default)]
pub struct PeerNotifier {
    gathered: Mutex<Gathered>,
    wakeup: Notify,
}

#[derive(Default)]
struct Gathered {
    queues: HashMap<QueueKey, Arrivals>,
    too_many: bool,
}

/// A notification for other servers.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerNotice {
    /// These queues have new deliveries.
    Queues(Vec<(QueueKey, Arrivals)>),
    /// Any queue may have new deliveries: too many queues have some, or it is unknown which.
    Everything,
}

impl PeerNotifier {
    /// Adds queues to the next notification.
    pub fn notify_queues(&self, queues: HashMap<QueueKey, Arrivals>) {
        if queues.is_empty() {
            return;
        }
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if gathered.too_many || gathered.queues.len() + queues.len() > MAX_NAMES {
            gathered.too_many = true;
            gathered.queues.clear();
        } else {
            for (queue, arrivals) in queues {
                gathered.queues.entry(queue).or_default().add(arrivals);
            }
        }
        self.wakeup.notify_one();
    }

    /// Makes all other servers scan all queues.
    pub fn notify_all_queues(&self) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.too_many = true;
        gathered.queues.clear();
        self.wakeup.notify_one();
    }

    /// Waits until there is a notification, and takes it.
    pub async fn next(&self) -> PeerNotice {
        loop {
            if let Some(notice) = self.take() {
                return notice;
            }
            self.wakeup.notified().await;
        }
    }

    fn take(&self) -> Option<PeerNotice> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut gathered.too_many) {
            return Some(PeerNotice::Everything);
        }
        if gathered.queues.is_empty() {
            return None;
        }
        Some(PeerNotice::Queues(gathered.queues.drain().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::NamespaceId;

    fn queue(tag: &str) -> QueueKey {
        QueueKey::of_tag(NamespaceId::DEFAULT, tag)
    }

    #[tokio::test]
    async fn names_gather_until_they_are_taken() {
        let peer_notifier = PeerNotifier::default();
        let at = |seq, count| Arrivals { first: QueuePosition { rank: 0, seq }, count };
        peer_notifier.notify_queues([(queue("a"), at(7, 1))].into());
        peer_notifier.notify_queues([(queue("a"), at(5, 2))].into());
        assert_eq!(peer_notifier.next().await, PeerNotice::Queues(vec![(queue("a"), at(5, 3))]));
        assert_eq!(peer_notifier.take(), None);
    }

    #[tokio::test]
    async fn too_many_names_become_everything() {
        let peer_notifier = PeerNotifier::default();
        peer_notifier.notify_queues((0..=MAX_NAMES).map(|n| (queue(&n.to_string()), Arrivals::default())).collect());
        assert_eq!(peer_notifier.next().await, PeerNotice::Everything);
        assert_eq!(peer_notifier.take(), None);
    }
}
