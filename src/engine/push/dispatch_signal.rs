//! The bell of the dispatcher: rung for a subscription that may have something to be sent.

use crate::domain::ids::SubscriptionId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// A bell that remembers for whom it was rung.
#[derive(Default)]
pub struct DispatchSignal {
    signaled: Mutex<Signaled>,
    wakeup: Notify,
    has_dispatcher: AtomicBool,
}

/// For whom it was rung.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Signaled {
    /// These.
    pub subscription_ids: BTreeSet<SubscriptionId>,
    /// Perhaps others, too: look at all.
    pub for_all: bool,
}

impl DispatchSignal {
    /// Says that somebody listens from now on.
    pub fn register_dispatcher(&self) {
        self.has_dispatcher.store(true, Ordering::Release);
    }

    /// Whether anybody listens: not every server pushes.
    pub fn has_dispatcher(&self) -> bool {
        self.has_dispatcher.load(Ordering::Acquire)
    }

    /// Rings for a subscription, or for all.
    pub fn signal(&self, subscription_id: Option<SubscriptionId>) {
        if !self.has_dispatcher() {
            return;
        }
        let mut signaled = self.signaled.lock().unwrap_or_else(PoisonError::into_inner);
        match subscription_id {
            Some(id) => {
                signaled.subscription_ids.insert(id);
            }
            None => signaled.for_all = true,
        }
        drop(signaled);
        self.wakeup.notify_one();
    }

    /// Wakes the dispatcher without a new name: something that it waits for has changed.
    pub fn nudge(&self) {
        self.wakeup.notify_one();
    }

    /// Waits for it to be rung.
    pub async fn signaled(&self) {
        self.wakeup.notified().await;
    }

    /// For whom it was rung since the last time.
    pub fn take(&self) -> Signaled {
        std::mem::take(&mut *self.signaled.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
