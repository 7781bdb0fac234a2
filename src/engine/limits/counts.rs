//! Counts that are read from the database every second, and what this server has added since.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::NamespaceUse;

/// A count of something in a namespace.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// What was in the database when it was last counted.
    counted: AtomicI64,
    /// What this server has stored since.
    added: AtomicI64,
    /// What this server is about to store.
    under_way: AtomicI64,
}

impl Counted {
    /// Enters what is about to be stored, unless that would exceed the limit. Adding nothing is always possible.
    fn enter(&self, limit: i64, amount: i64) -> bool {
        if amount == 0 {
            return true;
        }
        let under_way = self.under_way.fetch_add(amount, Ordering::AcqRel) + amount;
        let is_fine = self.stored().saturating_add(under_way) <= limit;
        if !is_fine {
            self.under_way.fetch_sub(amount, Ordering::AcqRel);
        }
        is_fine
    }

    /// Removes what was entered. The part that was stored counts until the next count has it.
    fn leave(&self, amount: i64, stored: i64) {
        self.added.fetch_add(stored.min(amount), Ordering::AcqRel);
        self.under_way.fetch_sub(amount, Ordering::AcqRel);
    }

    fn stored(&self) -> i64 {
        self.counted.load(Ordering::Acquire).saturating_add(self.added.load(Ordering::Acquire))
    }

    /// Returns the present count.
    pub(super) fn used(&self) -> i64 {
        self.stored().saturating_add(self.under_way.load(Ordering::Acquire))
    }

    /// Returns whether another count may give more room, and is needed soon.
    fn is_uncertain(&self, limit: i64) -> bool {
        self.added.load(Ordering::Acquire) > 0 && self.stored() > limit / 2
    }

    /// Returns what a count that begins now will include. To be passed to [`Self::finish`].
    pub(super) fn begin(&self) -> i64 {
        self.added.load(Ordering::Acquire)
    }

    /// Takes over a count.
    pub(super) fn finish(&self, counted: i64, included: i64) {
        self.counted.store(counted, Ordering::Release);
        self.added.fetch_sub(included, Ordering::AcqRel);
    }

    /// Forgets what was counted, because it is no longer counted.
    pub(super) fn reset(&self) {
        self.finish(0, self.begin());
    }
}

/// What a publish is about to add to its namespace. It is entered until this is dropped.
#[derive(Debug)]
pub(super) struct Addition {
    namespace: Arc<NamespaceUse>,
    waiting: i64,
    bytes: i64,
    /// What was stored of it: how many events that wait, and how many bytes.
    pub(super) stored: Option<(i64, i64)>,
}

/// Which count has no room, or whether another count is needed soon.
pub(super) enum Room {
    Given { addition: Addition, is_uncertain: bool },
    NoneForEvents,
    NoneForBytes,
}

impl Addition {
    /// Enters an addition.
    pub(super) fn enter(namespace: Arc<NamespaceUse>, waiting: (Option<i64>, i64), bytes: (Option<i64>, i64)) -> Room {
        let limit_of = |limit: Option<i64>| limit.unwrap_or(i64::MAX);
        let amount_of = |(limit, amount): (Option<i64>, i64)| if limit.is_some() { amount } else { 0 };
        let mut addition = Addition { namespace, waiting: 0, bytes: 0, stored: None };
        if !addition.namespace.waiting.enter(limit_of(waiting.0), amount_of(waiting)) {
            return Room::NoneForEvents;
        }
        addition.waiting = amount_of(waiting);
        if !addition.namespace.stored.enter(limit_of(bytes.0), amount_of(bytes)) {
            return Room::NoneForBytes;
        }
        addition.bytes = amount_of(bytes);
        let is_uncertain = addition.namespace.waiting.is_uncertain(limit_of(waiting.0));
        Room::Given { addition, is_uncertain }
    }
}

impl Drop for Addition {
    fn drop(&mut self) {
        let (waiting, bytes) = self.stored.unwrap_or_default();
        self.namespace.waiting.leave(self.waiting, waiting);
        self.namespace.stored.leave(self.bytes, bytes);
    }
}

/// A walk through the events of a namespace, which adds up their payloads in steps.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Walk {
    pub(super) after: i64,
    pub(super) bytes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_what_is_stored_and_under_way_and_not_what_failed() {
        let counted = Counted::default();
        assert!(counted.enter(10, 6) && !counted.enter(10, 5) && counted.enter(10, 4));
        counted.leave(6, 6);
        counted.leave(4, 0);
        assert_eq!(counted.used(), 6);
        let included = counted.begin();
        assert!(counted.enter(10, 3));
        counted.leave(3, 3);
        counted.finish(5, included);
        assert_eq!(counted.used(), 8, "what came during the count is added to it");
        assert!(!counted.enter(8, 1) && counted.enter(8, 0));
        counted.reset();
        assert_eq!(counted.used(), 0);
    }
}
