//! The subscriptions that are held because their secrets cannot be decrypted.

use std::collections::BTreeSet;

use crate::domain::encryption::Unreadable;
use crate::domain::ids::SubscriptionKey;

/// The held subscriptions. Each is reported once, when it is held, and once when it is released.
#[derive(Default)]
pub(super) struct Held(BTreeSet<SubscriptionKey>);

impl Held {
    /// Holds a subscription.
    pub(super) fn hold(&mut self, subscription: SubscriptionKey, unreadable: &Unreadable) {
        if self.0.insert(subscription) {
            log::error!(subscription_id = subscription.id; "pushes are held until the secrets can be decrypted: {unreadable}");
        }
    }

    /// Releases a subscription, if it is held.
    pub(super) fn release(&mut self, subscription: SubscriptionKey) {
        if self.0.remove(&subscription) {
            log::info!(subscription_id = subscription.id; "pushes are no longer held because of secrets");
        }
    }

    /// Returns the number of held subscriptions.
    pub(super) fn count(&self) -> i64 {
        self.0.len() as i64
    }
}
