//! What other servers should hear: queues that have new work.
//!
//! Nothing is sent from here. Names gather until the notifier takes them, so that however
//! many events are published, there is one `NOTIFY` at a time, outside of any publisher's
//! transaction (a `NOTIFY` takes a global lock at commit).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::engine::waiting::low_water_marks::QueuePosition;

/// More distinct names than this are announced as "look for yourselves".
const MAX_NAMES: usize = 200;

/// What has entered a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// The first place that was entered.
    pub first: QueuePosition,
    /// How many deliveries entered.
    pub count: usize,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { first: QueuePosition::END, count: 0 }
    }
}

impl Arrivals {
    /// Adds what has entered the same queue.
    pub fn add(&mut self, other: Arrivals) {
        self.first = self.first.min(other.first);
        self.count += other.count;
    }
}

/// Names of queues, gathering.
#[derive(Default)]
pub struct PeerNotifier {
    gathered: Mutex<Gathered>,
    wakeup: Notify,
}

#[derive(Default)]
struct Gathered {
    queues: HashMap<String, Arrivals>,
    too_many: bool,
}

/// What is to be announced.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerNotice {
    /// These queues have new work.
    Queues(Vec<(String, Arrivals)>),
    /// Any queue may have: so many have that it is not worth listing them, or it is not known
    /// which.
    Everything,
}

impl PeerNotifier {
    /// Adds names.
    pub fn notify_queues(&self, queues: HashMap<String, Arrivals>) {
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

    /// Has all other servers look for themselves.
    pub fn notify_all_queues(&self) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.too_many = true;
        gathered.queues.clear();
        self.wakeup.notify_one();
    }

    /// Waits until there is something, and takes it.
    pub async fn next(&self) -> PeerNotice {
        loop {
            if let Some(announcement) = self.take() {
                return announcement;
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

    #[tokio::test]
    async fn names_gather_until_they_are_taken() {
        let peer_notifier = PeerNotifier::default();
        let at = |seq, count| Arrivals { first: QueuePosition { rank: 0, seq }, count };
        peer_notifier.notify_queues([("t:a".to_owned(), at(7, 1))].into());
        peer_notifier.notify_queues([("t:a".to_owned(), at(5, 2))].into());
        assert_eq!(peer_notifier.next().await, PeerNotice::Queues(vec![("t:a".into(), at(5, 3))]));
        assert_eq!(peer_notifier.take(), None);
    }

    #[tokio::test]
    async fn too_many_names_become_everything() {
        let peer_notifier = PeerNotifier::default();
        peer_notifier.notify_queues((0..=MAX_NAMES).map(|n| (n.to_string(), Arrivals::default())).collect());
        assert_eq!(peer_notifier.next().await, PeerNotice::Everything);
        assert_eq!(peer_notifier.take(), None);
    }
}
