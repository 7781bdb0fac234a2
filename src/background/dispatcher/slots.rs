//! Limits the requests in flight, in total and for each subscription, and the memory that they take.
//! The sizes of the next payloads are unknown before they are claimed, so they are estimated from the
//! latest ones.
//!
//! A request frees its slot when there is a response, and its outcome waits to be recorded. If
//! requests ended faster than outcomes are recorded, leases would expire before their outcomes are
//! recorded, and pushes would be sent twice. The number of waiting outcomes is therefore limited. So
//! is the sum of waiting outcomes and requests in flight, because all requests may end at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::ids::SubscriptionKey;
use crate::engine::Engine;

/// The maximum total size of the payloads in flight.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// The number of outcomes waiting to be recorded at which no more pushes are claimed. Recording them
/// takes a fraction of `LEASE_MARGIN_SECONDS`.
const MAX_UNRECORDED: usize = 1_000;

/// The maximum number of requests in flight plus outcomes waiting to be recorded. If all requests end
/// at once, this many outcomes must be recorded within `LEASE_MARGIN_SECONDS`: 667 per second.
/// `--max-pushes` is at most this.
pub const MAX_CLAIMED: usize = 10_000;

/// The weight of the latest payload in the estimate of the next sizes (a moving average).
const WEIGHT: f64 = 0.1;

/// The slots of one server.
pub struct Slots {
    taken: Mutex<Taken>,
    capacity: usize,
    engine: Engine,
}

#[derive(Default)]
struct Taken {
    /// The number of requests in flight.
    in_flight: usize,
    /// The number of outcomes that wait to be recorded.
    unrecorded: usize,
    bytes: usize,
    /// The estimated size of the next payload.
    expected_bytes: f64,
    by_subscription: HashMap<SubscriptionKey, usize>,
}

impl Taken {
    /// Returns the number of pushes that may be claimed.
    fn free(&self, capacity: usize) -> usize {
        let claimed = self.in_flight + self.unrecorded;
        let by_bytes = (MAX_BYTES.saturating_sub(self.bytes) as f64 / self.expected_bytes.max(1.0)) as usize;
        // If nothing is claimed, one push of any size is allowed. Otherwise a large one would wait forever.
        let by_bytes = if claimed == 0 { by_bytes.max(1) } else { by_bytes };
        let by_unrecorded = MAX_UNRECORDED.saturating_sub(self.unrecorded);
        let by_claimed = MAX_CLAIMED.saturating_sub(claimed);
        capacity.saturating_sub(self.in_flight).min(by_bytes).min(by_unrecorded).min(by_claimed)
    }
}

impl Slots {
    /// Creates `capacity` slots. The engine's dispatch signal is triggered when a slot is freed.
    pub fn new(capacity: usize, engine: Engine) -> Arc<Self> {
        Arc::new(Slots { taken: Mutex::default(), capacity, engine })
    }

    /// Returns the number of free slots for a subscription with the limit `max_concurrency`. One
    /// subscription can take at most 90 % of all slots, so others go on if its endpoint hangs.
    pub fn free(&self, subscription: SubscriptionKey, max_concurrency: i32) -> usize {
        let max_share = (self.capacity - self.capacity / 10).max(1);
        usize::try_from(max_concurrency).unwrap_or(0).min(max_share).saturating_sub(self.taken(subscription))
    }

    /// Returns the number of requests in flight to a subscription.
    pub fn taken(&self, subscription: SubscriptionKey) -> usize {
        self.lock().by_subscription.get(&subscription).copied().unwrap_or(0)
    }

    /// Returns the number of free slots of the server.
    pub fn total_free(&self) -> usize {
        self.lock().free(self.capacity)
    }

    /// Returns whether the server has no free slot.
    pub fn all_taken(&self) -> bool {
        self.total_free() == 0
    }

    /// Takes a slot, which is freed when it is dropped.
    pub fn take(self: &Arc<Self>, subscription: SubscriptionKey, bytes: usize) -> Slot {
        let mut taken = self.lock();
        taken.in_flight += 1;
        taken.bytes += bytes;
        taken.expected_bytes += (bytes as f64 - taken.expected_bytes) * WEIGHT;
        self.engine.metrics().pushes_in_flight.set(taken.in_flight as i64);
        *taken.by_subscription.entry(subscription).or_default() += 1;
        drop(taken);
        Slot { slots: self.clone(), subscription, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a request in flight.
pub struct Slot {
    slots: Arc<Slots>,
    subscription: SubscriptionKey,
    bytes: usize,
}

/// An outcome that waits to be recorded. Its push stays in memory until then.
pub struct Unrecorded {
    slots: Arc<Slots>,
    bytes: usize,
}

impl Slot {
    /// Frees the slot, because the request has ended. The outcome counts as unrecorded.
    pub fn answered(mut self) -> Unrecorded {
        let bytes = std::mem::take(&mut self.bytes);
        self.slots.lock().unrecorded += 1;
        Unrecorded { slots: self.slots.clone(), bytes }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.in_flight -= 1;
        taken.bytes -= self.bytes;
        self.slots.engine.metrics().pushes_in_flight.set(taken.in_flight as i64);
        if let Some(count) = taken.by_subscription.get_mut(&self.subscription) {
            *count -= 1;
            if *count == 0 {
                taken.by_subscription.remove(&self.subscription);
            }
        }
        drop(taken);
        self.slots.engine.dispatch_signal().nudge();
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.unrecorded -= 1;
        taken.bytes -= self.bytes;
        drop(taken);
        self.slots.engine.dispatch_signal().nudge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(capacity: usize, in_flight: usize, unrecorded: usize) -> usize {
        Taken { in_flight, unrecorded, ..Taken::default() }.free(capacity)
    }

    #[test]
    fn requests_in_flight_count_like_unrecorded_outcomes() {
        assert_eq!(free(MAX_CLAIMED, 9_500, 100), 400);
        assert_eq!(free(MAX_CLAIMED, 9_500, 500), 0);
    }

    #[test]
    fn all_slots_are_free_while_few_outcomes_are_unrecorded() {
        assert_eq!(free(1_000, 0, 0), 1_000);
        assert_eq!(free(1_000, 900, 500), 100);
        assert_eq!(free(1_000, 1_000, 0), 0);
        assert_eq!(free(1_000, 0, MAX_UNRECORDED), 0);
    }
}
