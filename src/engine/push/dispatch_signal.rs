//! The signal that wakes the dispatcher for subscriptions that may have something to send.

use crate::domain::ids::SubscriptionKey;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// A wake-up signal that remembers the subscriptions that it was given for.
#[derive(Default)]
pub struct DispatchSignal {
    signaled: Mutex<Signaled>,
    wakeup: Notify,
    has_dispatcher: AtomicBool,
}

/// The subscriptions that the signal was given for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Signaled {
    pub subscriptions: BTreeSet<SubscriptionKey>,
    /// Any subscription may have something to send: check all.
    pub for_all: bool,
}

impl DispatchSignal {
    /// Records that this server has a dispatcher.
    pub fn register_dispatcher(&self) {
        self.has_dispatcher.store(true, Ordering::Release);
    }

    /// Returns whether this server has a dispatcher. Not every server pushes.
    pub fn has_dispatcher(&self) -> bool {
        self.has_dispatcher.load(Ordering::Acquire)
    }

    /// Signals one subscription, or all of them for `None`.
    pub fn signal(&self, subscription: Option<SubscriptionKey>) {
        if !self.has_dispatcher() {
            return;
        }
        let mut signaled = self.signaled.lock().unwrap_or_else(PoisonError::into_inner);
        match subscription {
            Some(key) => {
                signaled.subscriptions.insert(key);
            }
            None => signaled.for_all = true,
        }
        drop(signaled);
        self.wakeup.notify_one();
    }

    /// Wakes the dispatcher without a subscription: something that it waits for has changed.
    pub fn nudge(&self) {
        self.wakeup.notify_one();
    }

    /// Waits for a signal.
    pub async fn signaled(&self) {
        self.wakeup.notified().await;
    }

    /// Returns the subscriptions that were signaled since the last call.
    pub fn take(&self) -> Signaled {
        std::mem::take(&mut *self.signaled.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
