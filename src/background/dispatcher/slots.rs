//! How many requests may be under way: in all, and to each subscription.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::Engine;

/// The slots of one server.
pub struct Slots {
    taken: Mutex<Taken>,
    capacity: usize,
    engine: Engine,
}

#[derive(Default)]
struct Taken {
    in_all: usize,
    by_subscription: HashMap<i64, usize>,
}

impl Slots {
    /// So many slots; the engine's bell is rung when one falls free.
    pub fn new(capacity: usize, engine: Engine) -> Arc<Self> {
        Arc::new(Slots { taken: Mutex::default(), capacity, engine })
    }

    /// How many more requests to a subscription may be under way, of `most`.
    pub fn free(&self, subscription_id: i64, most: i32) -> usize {
        let taken = self.lock().by_subscription.get(&subscription_id).copied().unwrap_or(0);
        usize::try_from(most).unwrap_or(0).saturating_sub(taken)
    }

    /// How many more requests may be under way in all.
    pub fn free_in_all(&self) -> usize {
        self.capacity.saturating_sub(self.lock().in_all)
    }

    /// Whether none may.
    pub fn all_taken(&self) -> bool {
        self.free_in_all() == 0
    }

    /// How many are.
    pub fn in_flight(&self) -> usize {
        self.lock().in_all
    }

    /// Takes a slot until it is dropped.
    pub fn take(self: &Arc<Self>, subscription_id: i64) -> Slot {
        let mut taken = self.lock();
        taken.in_all += 1;
        self.engine.metrics.pushes_in_flight.set(taken.in_all as i64);
        *taken.by_subscription.entry(subscription_id).or_default() += 1;
        drop(taken);
        Slot { slots: self.clone(), subscription_id }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way.
pub struct Slot {
    slots: Arc<Slots>,
    subscription_id: i64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.in_all -= 1;
        self.slots.engine.metrics.pushes_in_flight.set(taken.in_all as i64);
        if let Some(count) = taken.by_subscription.get_mut(&self.subscription_id) {
            *count -= 1;
            if *count == 0 {
                taken.by_subscription.remove(&self.subscription_id);
            }
        }
        drop(taken);
        self.slots.engine.push_bell.nudge();
    }
}
