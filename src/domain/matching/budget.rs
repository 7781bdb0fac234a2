//! How much the filters may look at, for one event.
//!
//! All filters together may look at each payload a number of times over, and at so many bytes per
//! request besides; one filter may use half of that. Nobody is refused because somebody else is
//! expensive: in the first round every filter gets the same share of the total, and those that need
//! no more are done. What is left then is shared by the others, in a second round. A small share is
//! granted to every filter, however many there are.
//!
//! The shares depend on the event, on the number of events that are published with it, and on the
//! subscriptions that it may be for. They do not depend on how busy the server is.

use crate::domain::limits;

/// What is left of an event's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    left: u64,
    per_filter: u64,
}

impl Budget {
    /// Returns the budget of one of so many events that are published by one request.
    pub fn of(payload_bytes: usize, events: usize) -> Self {
        let of_request = limits::MATCHING_REQUEST_BYTES / (events.max(1) as u64);
        let left = (payload_bytes as u64).saturating_mul(limits::MATCHING_LOOKS).saturating_add(of_request);
        Self { left, per_filter: left / 2 }
    }

    /// Returns what each of so many filters may look at.
    pub(super) fn share(self, filters: usize) -> u64 {
        let equal = self.left / (filters.max(1) as u64);
        equal.min(self.per_filter).max(limits::FILTER_LEAST_WORK_BYTES)
    }

    /// Takes off what a filter has looked at.
    pub(super) fn take(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn the_budget_grows_with_the_payload_and_is_shared() {
        assert_eq!(Budget::of(MIB as usize, 1).share(1), 16 * MIB);
        assert_eq!(Budget::of(MIB as usize, 1).share(2), 16 * MIB);
        assert_eq!(Budget::of(MIB as usize, 1).share(64), MIB / 2);
        assert_eq!(Budget::of(0, 1).share(16), MIB);
        assert_eq!(Budget::of(0, 16).share(1), MIB / 2);
    }

    /// The largest request is 16 MiB, of at most a thousand events.
    #[test]
    fn a_request_has_a_budget_however_it_is_made_up() {
        for (payload_bytes, events) in [(16 * MIB, 1), (MIB, 16), (16 * 1024, 1000), (0, 1000)] {
            let total = Budget::of(payload_bytes as usize, events).left * events as u64;
            assert!(total <= (16 + 16 * 16) * MIB, "{total}");
        }
    }

    #[test]
    fn every_filter_has_its_least() {
        for filters in [1, 100, 10_000, 1_000_000] {
            assert!(Budget::of(0, 1000).share(filters) >= 4096);
        }
    }

    #[test]
    fn what_is_used_is_left_to_nobody() {
        let mut budget = Budget::of(MIB as usize, 1);
        budget.take(31 * MIB);
        assert_eq!(budget.share(2), MIB / 2);
        budget.take(u64::MAX);
        assert_eq!(budget.share(2), 4096);
    }
}
