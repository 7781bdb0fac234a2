//! What other servers should hear: queues that have new work.
//!
//! Nothing is sent from here. Names gather until the notifier takes them, so that however
//! many events are published, there is one `NOTIFY` at a time, outside of any publisher's
//! transaction (a `NOTIFY` takes a global lock at commit).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::engine::waiting::low_water_marks::Place;

/// More distinct names than this are announced as "look for yourselves".
const MAX_NAMES: usize = 200;

/// What has entered a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// The first place that was entered.
    pub first: Place,
    /// How many deliveries entered.
    pub count: usize,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { first: Place::END, count: 0 }
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
pub struct Announcer {
    gathered: Mutex<Gathered>,
    bell: Notify,
}

#[derive(Default)]
struct Gathered {
    queues: HashMap<String, Arrivals>,
    too_many: bool,
}

/// What is to be announced.
#[derive(Debug, PartialEq, Eq)]
pub enum Announcement {
    /// These queues have new work.
    Queues(Vec<(String, Arrivals)>),
    /// Any queue may have: so many have that it is not worth listing them, or it is not known
    /// which.
    Everything,
}

impl Announcer {
    /// Adds names.
    pub fn announce(&self, queues: HashMap<String, Arrivals>) {
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
        self.bell.notify_one();
    }

    /// Has all other servers look for themselves.
    pub fn announce_everything(&self) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.too_many = true;
        gathered.queues.clear();
        self.bell.notify_one();
    }

    /// Waits until there is something, and takes it.
    pub async fn next(&self) -> Announcement {
        loop {
            if let Some(announcement) = self.take() {
                return announcement;
            }
            self.bell.notified().await;
        }
    }

    fn take(&self) -> Option<Announcement> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut gathered.too_many) {
            return Some(Announcement::Everything);
        }
        if gathered.queues.is_empty() {
            return None;
        }
        Some(Announcement::Queues(gathered.queues.drain().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_gather_until_they_are_taken() {
        let announcer = Announcer::default();
        let at = |seq, count| Arrivals { first: Place { rank: 0, seq }, count };
        announcer.announce([("t:a".to_owned(), at(7, 1))].into());
        announcer.announce([("t:a".to_owned(), at(5, 2))].into());
        assert_eq!(announcer.next().await, Announcement::Queues(vec![("t:a".into(), at(5, 3))]));
        assert_eq!(announcer.take(), None);
    }

    #[tokio::test]
    async fn too_many_names_become_everything() {
        let announcer = Announcer::default();
        announcer.announce((0..=MAX_NAMES).map(|n| (n.to_string(), Arrivals::default())).collect());
        assert_eq!(announcer.next().await, Announcement::Everything);
        assert_eq!(announcer.take(), None);
    }
}
