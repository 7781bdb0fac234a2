//! How many requests may be under way: in all, and to each subscription; and how much of the
//! memory they may take. How large the next ones are is not known before they are claimed, so
//! room is made for as many as would fit if they were like the last ones.
//!
//! An answered request gives its receiver's slot back, and its outcome waits to be recorded. If
//! requests ended faster than that, claims would run out before the outcomes are on record, and
//! pushes be sent twice. So the number of outcomes that wait is bounded, and so is their number
//! together with the requests under way, all of which may end at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::ids::SubscriptionId;
use crate::engine::Engine;

/// Bytes of payloads that may be under way at once.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// Outcomes that may wait to be recorded; beyond that nothing is claimed. Recording as many takes a
/// fraction of the time that a claim holds after its request.
const MAX_UNRECORDED: usize = 1_000;

/// Requests under way and outcomes that wait to be recorded, together; beyond that nothing is
/// claimed. If all requests end at once, so many outcomes wait, and are to be recorded within the
/// `LEASE_MARGIN_SECONDS` for which claims hold after their requests: 667 per second.
/// `--max-pushes` is at most this.
pub const MAX_CLAIMED: usize = 10_000;

/// How much the last payload counts in the estimate of the next ones.
const WEIGHT: f64 = 0.1;

/// The slots of one server.
pub struct Slots {
    taken: Mutex<Taken>,
    capacity: usize,
    engine: Engine,
}

#[derive(Default)]
struct Taken {
    in_all: usize,
    unrecorded: usize,
    bytes: usize,
    usual_bytes: f64,
    by_subscription: HashMap<SubscriptionId, usize>,
}

impl Taken {
    fn free(&self, capacity: usize) -> usize {
        let claimed = self.in_all + self.unrecorded;
        let room = (MAX_BYTES.saturating_sub(self.bytes) as f64 / self.usual_bytes.max(1.0)) as usize;
        // One is always let through, however large, or a large one would never be.
        let room = if claimed == 0 { room.max(1) } else { room };
        let unrecorded = MAX_UNRECORDED.saturating_sub(self.unrecorded);
        let unclaimed = MAX_CLAIMED.saturating_sub(claimed);
        capacity.saturating_sub(self.in_all).min(room).min(unrecorded).min(unclaimed)
    }
}

impl Slots {
    /// So many slots; the engine's bell is rung when one falls free.
    pub fn new(capacity: usize, engine: Engine) -> Arc<Self> {
        Arc::new(Slots { taken: Mutex::default(), capacity, engine })
    }

    /// How many more requests to a subscription may be under way, of `most`. A tenth of all slots
    /// is out of reach for any one of them: if its endpoint hangs, others go on.
    pub fn free(&self, subscription_id: SubscriptionId, most: i32) -> usize {
        let within_reach = (self.capacity - self.capacity / 10).max(1);
        usize::try_from(most).unwrap_or(0).min(within_reach).saturating_sub(self.taken(subscription_id))
    }

    /// How many requests to a subscription are under way.
    pub fn taken(&self, subscription_id: SubscriptionId) -> usize {
        self.lock().by_subscription.get(&subscription_id).copied().unwrap_or(0)
    }

    /// How many more requests may be under way in all.
    pub fn free_in_all(&self) -> usize {
        self.lock().free(self.capacity)
    }

    /// Whether none may.
    pub fn all_taken(&self) -> bool {
        self.free_in_all() == 0
    }

    /// Takes a slot until it is dropped.
    pub fn take(self: &Arc<Self>, subscription_id: SubscriptionId, bytes: usize) -> Slot {
        let mut taken = self.lock();
        taken.in_all += 1;
        taken.bytes += bytes;
        taken.usual_bytes += (bytes as f64 - taken.usual_bytes) * WEIGHT;
        self.engine.metrics().pushes_in_flight.set(taken.in_all as i64);
        *taken.by_subscription.entry(subscription_id).or_default() += 1;
        drop(taken);
        Slot { slots: self.clone(), subscription_id, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way.
pub struct Slot {
    slots: Arc<Slots>,
    subscription_id: SubscriptionId,
    bytes: usize,
}

/// An outcome that is not on record yet. Its push stays in memory until then.
pub struct Unrecorded {
    slots: Arc<Slots>,
    bytes: usize,
}

impl Slot {
    /// The receiver has answered.
    pub fn answered(mut self) -> Unrecorded {
        let bytes = std::mem::take(&mut self.bytes);
        self.slots.lock().unrecorded += 1;
        Unrecorded { slots: self.slots.clone(), bytes }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.in_all -= 1;
        taken.bytes -= self.bytes;
        self.slots.engine.metrics().pushes_in_flight.set(taken.in_all as i64);
        if let Some(count) = taken.by_subscription.get_mut(&self.subscription_id) {
            *count -= 1;
            if *count == 0 {
                taken.by_subscription.remove(&self.subscription_id);
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

    fn free(capacity: usize, in_all: usize, unrecorded: usize) -> usize {
        Taken { in_all, unrecorded, ..Taken::default() }.free(capacity)
    }

    #[test]
    fn requests_under_way_count_among_the_outcomes_that_will_wait() {
        assert_eq!(free(MAX_CLAIMED, 9_500, 100), 400);
        assert_eq!(free(MAX_CLAIMED, 9_500, 500), 0);
    }

    #[test]
    fn a_thousand_slots_are_all_free_for_requests_while_few_outcomes_wait() {
        assert_eq!(free(1_000, 0, 0), 1_000);
        assert_eq!(free(1_000, 900, 500), 100);
        assert_eq!(free(1_000, 1_000, 0), 0);
        assert_eq!(free(1_000, 0, MAX_UNRECORDED), 0);
    }
}
