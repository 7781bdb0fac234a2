//! Whether a second batch may run beside the first.
//!
//! Most of the cost of a small statement is fixed, and two that insert at once wait for each other's pages. So where the
//! database has few processors, one batch of 30 calls takes less time than two of 15. There a second batch runs beside the
//! first only if it is large, so that it gains nothing by waiting, or if the database is slow: if it waits for a disk or a
//! network rather than works, it does twice as much in the same time with two batches.

use std::time::Duration;

/// The number of rows from which on a batch gains nothing by becoming larger.
const LARGE_BATCH: usize = 50;

/// The time that a row takes a database that works. It need not be exact.
const TIME_PER_ROW: Duration = Duration::from_micros(25);

/// The time that a batch takes beyond that of its rows, from which on the database is slow.
const SLOW_AFTER: Duration = Duration::from_micros(700);

/// The share of the last batch in the average.
const SHARE_OF_LAST: f64 = 0.125;

/// Decides about the second batch of one queue.
#[derive(Debug)]
pub(super) struct Overlap {
    /// Whether the database has few processors.
    is_restrained: bool,
    /// The average time that batches took beyond that of their rows, in seconds.
    waiting_seconds: f64,
}

impl Overlap {
    /// Returns the rule of a queue. Until it is known how fast the database is, it is taken to be slow.
    pub(super) fn new(is_restrained: bool) -> Self {
        Overlap { is_restrained, waiting_seconds: 2.0 * SLOW_AFTER.as_secs_f64() }
    }

    /// Records how long a batch of this many rows took.
    pub(super) fn note(&mut self, rows: usize, took: Duration) {
        let waiting = took.saturating_sub(TIME_PER_ROW * rows as u32).as_secs_f64();
        self.waiting_seconds += SHARE_OF_LAST * (waiting - self.waiting_seconds);
    }

    /// Returns whether a batch of this many rows may run beside another one.
    pub(super) fn allows(&self, rows: usize) -> bool {
        !self.is_restrained || rows >= LARGE_BATCH || self.waiting_seconds >= SLOW_AFTER.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_batches(rows: usize, took: Duration) -> Overlap {
        let mut overlap = Overlap::new(true);
        (0..50).for_each(|_| overlap.note(rows, took));
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
        (0..4).for_each(|_| overlap.note(16, Duration::from_millis(5)));
        assert!(overlap.allows(1));
    }

    #[test]
    fn without_restraint_every_batch_does() {
        let mut overlap = Overlap::new(false);
        (0..50).for_each(|_| overlap.note(1, Duration::ZERO));
        assert!(overlap.allows(1));
    }
}
