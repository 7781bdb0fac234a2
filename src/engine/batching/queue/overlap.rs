//! Whether a second batch may run beside the first.
//!
//! Most of the cost of a small statement is fixed, and two that insert at once wait for each other's pages. So on a
//! machine with few processors, one batch of 30 calls takes less time than two of 15. There a second batch runs beside the
//! first in two cases only:
//! - One of them is large. A large batch gains nothing by becoming larger, and a small one should not wait for it.
//! - The database is slow: it waits for a disk or a network more than it works. Then two batches at once do twice as much.
//!
//! Only batches that ran alone tell how fast the database is, because two at once make each other slow. While batches
//! overlap, one in [`BATCHES_PER_PROBE`] runs alone to find out.

use std::time::Duration;

/// The number of rows from which on a batch gains nothing by becoming larger.
const LARGE_BATCH: usize = 50;

/// The time that a row takes a database that works. It need not be exact.
const TIME_PER_ROW: Duration = Duration::from_micros(25);

/// The time that a batch takes beyond that of its rows, from which on the database is slow.
const SLOW_AFTER: Duration = Duration::from_micros(700);

/// The longest such time that counts: a single checkpoint or lock says nothing about the batches after it.
const LONGEST_WAITING: Duration = Duration::from_millis(3);

/// The share of the last batch in the average.
const SHARE_OF_LAST: f64 = 0.125;

/// While batches overlap, one of this many runs alone.
const BATCHES_PER_PROBE: u32 = 32;

/// Decides about the second batch of one queue.
#[derive(Debug)]
pub(super) struct Overlap {
    /// Whether small batches are to wait for each other.
    is_restrained: bool,
    /// The average time that batches took beyond that of their rows, in seconds.
    waiting_seconds: f64,
    /// Whether the batch that runs has had another one beside it.
    has_overlap: bool,
    /// The number of batches since the last one that ran alone.
    overlapped: u32,
}

impl Overlap {
    /// Returns the rule of a queue. Until it is known how fast the database is, it is taken to be slow.
    pub(super) fn new(is_restrained: bool) -> Self {
        Overlap { is_restrained, waiting_seconds: 2.0 * SLOW_AFTER.as_secs_f64(), has_overlap: false, overlapped: 0 }
    }

    /// Records that a batch begins while this many calls of others are in flight.
    pub(super) fn begin(&mut self, calls_in_flight: usize) {
        self.has_overlap = calls_in_flight > 0;
    }

    /// Records how long a batch of this many rows took.
    pub(super) fn end(&mut self, rows: usize, took: Duration) {
        if self.has_overlap {
            self.overlapped = self.overlapped.saturating_add(1);
            return;
        }
        self.overlapped = 0;
        let waiting = took.saturating_sub(TIME_PER_ROW * rows as u32).min(LONGEST_WAITING).as_secs_f64();
        self.waiting_seconds += SHARE_OF_LAST * (waiting - self.waiting_seconds);
    }

    /// Returns whether two batches, the larger of which has this many rows, may run at once.
    pub(super) fn allows(&self, rows: usize) -> bool {
        let is_slow = self.waiting_seconds >= SLOW_AFTER.as_secs_f64();
        !self.is_restrained || rows >= LARGE_BATCH || is_slow && self.overlapped < BATCHES_PER_PROBE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_batches(rows: usize, took: Duration) -> Overlap {
        let mut overlap = Overlap::new(true);
        (0..50).for_each(|_| overlap.end(rows, took));
        overlap
    }

    #[test]
    fn with_a_fast_database_only_a_large_batch_runs_beside_another() {
        for (rows, took) in [(1, 300), (16, 600), (64, 2_000)] {
            let overlap = after_batches(rows, Duration::from_micros(took));
            assert!(!overlap.allows(LARGE_BATCH - 1) && overlap.allows(LARGE_BATCH), "{rows} rows in {took} µs");
        }
    }

    #[test]
    fn with_a_slow_database_every_batch_does() {
        for (rows, took) in [(1, 1_000), (16, 1_500), (64, 3_000)] {
            assert!(after_batches(rows, Duration::from_micros(took)).allows(1), "{rows} rows in {took} µs");
        }
    }

    #[test]
    fn a_database_that_becomes_slow_is_noticed_within_a_few_batches() {
        let mut overlap = after_batches(16, Duration::from_micros(500));
        assert!(!overlap.allows(1));
        (0..4).for_each(|_| overlap.end(16, Duration::from_millis(5)));
        assert!(overlap.allows(1));
    }

    #[test]
    fn a_single_stall_changes_nothing() {
        let mut overlap = after_batches(16, Duration::from_micros(500));
        overlap.end(16, Duration::from_secs(2));
        assert!(!overlap.allows(1));
    }

    #[test]
    fn batches_that_overlap_do_not_make_the_database_look_slow_and_end_when_one_alone_is_fast() {
        let mut overlap = Overlap::new(true);
        let mut alone = 0;
        for _ in 0..1_000 {
            // Beside each other they take long; alone they are fast.
            let was_alone = !overlap.allows(1);
            alone += u32::from(was_alone);
            overlap.begin(usize::from(!was_alone));
            overlap.end(16, Duration::from_micros(if was_alone { 600 } else { 2_000 }));
        }
        assert!(!overlap.allows(1) && alone > 500, "{alone} ran alone");
    }

    #[test]
    fn without_restraint_every_batch_does() {
        let mut overlap = Overlap::new(false);
        (0..50).for_each(|_| overlap.end(1, Duration::ZERO));
        assert!(overlap.allows(1));
    }
}
