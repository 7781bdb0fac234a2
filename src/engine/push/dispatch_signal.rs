//! The bell of the dispatcher: rung for a subscription that may have something to be sent.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// A bell that remembers for whom it was rung.
#[derive(Default)]
pub struct PushBell {
    rung: Mutex<Rung>,
    bell: Notify,
    is_attended: AtomicBool,
}

/// For whom it was rung.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rung {
    /// These.
    pub subscription_ids: BTreeSet<i64>,
    /// Perhaps others, too: look at all.
    pub for_all: bool,
}

impl PushBell {
    /// Says that somebody listens from now on.
    pub fn attend(&self) {
        self.is_attended.store(true, Ordering::Release);
    }

    /// Whether anybody listens: not every server pushes.
    pub fn is_attended(&self) -> bool {
        self.is_attended.load(Ordering::Acquire)
    }

    /// Rings for a subscription, or for all.
    pub fn ring(&self, subscription_id: Option<i64>) {
        if !self.is_attended() {
            return;
        }
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        match subscription_id {
            Some(id) => {
                rung.subscription_ids.insert(id);
            }
            None => rung.for_all = true,
        }
        drop(rung);
        self.bell.notify_one();
    }

    /// Wakes the dispatcher without a new name: something that it waits for has changed.
    pub fn nudge(&self) {
        self.bell.notify_one();
    }

    /// Waits for it to be rung.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }

    /// For whom it was rung since the last time.
    pub fn take(&self) -> Rung {
        std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
