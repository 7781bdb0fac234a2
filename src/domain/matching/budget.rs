//! The number of bytes that filters may read for one event.
//!
//! All filters together may read each payload [`limits::MATCHING_PAYLOAD_READS`] times, plus
//! [`limits::MATCHING_REQUEST_BYTES`] per request. One filter may use half of that. An expensive
//! filter must not push out a cheap one: in a first round every filter gets an equal share of the
//! total, and the filters that need no more are done. A second round divides what is left among the
//! others. Every filter gets at least [`limits::FILTER_LEAST_WORK_BYTES`], however many filters there
//! are.
//!
//! The shares depend on the event, on the number of events published with it, and on the
//! subscriptions that it may match. They do not depend on the load of the server.

use crate::domain::limits;

/// The remaining budget of an event, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    left: u64,
    per_filter: u64,
}

impl Budget {
    /// Returns the budget of one event in a request that publishes `events` events.
    pub(crate) fn of(payload_bytes: usize, events: usize) -> Self {
        let request_share = limits::MATCHING_REQUEST_BYTES / (events.max(1) as u64);
        let left = (payload_bytes as u64).saturating_mul(limits::MATCHING_PAYLOAD_READS).saturating_add(request_share);
        Self { left, per_filter: left / 2 }
    }

    /// Returns the number of bytes that each of `filters` filters may read.
    pub(super) fn share(self, filters: usize) -> u64 {
        let equal = self.left / (filters.max(1) as u64);
        equal.min(self.per_filter).max(limits::FILTER_LEAST_WORK_BYTES)
    }

    /// Subtracts the bytes that a filter has read.
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

    /// The largest request has 16 MiB and at most 1000 events.
    #[test]
    fn the_budget_of_a_request_is_bounded_for_any_number_of_events() {
        for (payload_bytes, events) in [(16 * MIB, 1), (MIB, 16), (16 * 1024, 1000), (0, 1000)] {
            let total = Budget::of(payload_bytes as usize, events).left * events as u64;
            assert!(total <= (16 + 16 * 16) * MIB, "{total}");
        }
    }

    #[test]
    fn every_filter_gets_the_minimum() {
        for filters in [1, 100, 10_000, 1_000_000] {
            assert!(Budget::of(0, 1000).share(filters) >= 4096);
        }
    }

    #[test]
    fn bytes_that_were_read_are_not_shared_again() {
        let mut budget = Budget::of(MIB as usize, 1);
        budget.take(31 * MIB);
        assert_eq!(budget.share(2), MIB / 2);
        budget.take(u64::MAX);
        assert_eq!(budget.share(2), 4096);
    }
}
