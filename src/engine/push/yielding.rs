//! Yielding: recording push outcomes pauses while workers need the database.
//!
//! Thousands of pushes can end at once, and no caller waits until their outcomes are recorded. Workers
//! and publishers do wait. If both need the database, tasks that record many outcomes pause between
//! their transactions, and workers keep most of the database's capacity.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Engine;
use crate::engine::batching::deadline::WithDeadline;
use crate::engine::settle::{SettleRequest, Settlement};

/// A pause is this many times as long as the transaction before it.
const PAUSE_FACTOR: u32 = 6;

/// The maximum length of a pause.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// Outcomes that have waited longer are recorded without pauses. Otherwise the leases of the pushes
/// would run out.
const MAX_OUTCOME_AGE: Duration = Duration::from_secs(2);

/// While more outcomes than this wait, they are recorded without pauses. The dispatcher claims nothing
/// while this many wait, so there are more only if many requests in flight have ended at once.
const MAX_OUTCOMES_QUEUED: usize = 1_000;

/// The time until which no push outcomes are recorded.
#[derive(Default)]
pub(crate) struct PushPause(Mutex<Option<Instant>>);

impl PushPause {
    /// Waits for the end of the pause.
    pub(crate) async fn over(&self) {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }

    fn begin(&self, length: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + length);
    }
}

/// A batch of outcomes of pushes that is being recorded.
pub(crate) struct PushBatchLoad {
    began: Instant,
    has_failures: bool,
    /// The age of an outcome counts from the end of its push, even if it was refused and is queued again.
    oldest_outcome: Option<Instant>,
}

impl PushBatchLoad {
    pub(crate) fn of(requests: &[WithDeadline<SettleRequest>]) -> Self {
        let calls = || requests.iter().flat_map(|timed| timed.call.iter());
        PushBatchLoad {
            began: Instant::now(),
            has_failures: calls().any(|call| matches!(call.settlement, Settlement::Fail { .. })),
            oldest_outcome: calls().filter_map(|call| call.push_ended_at).min(),
        }
    }
}

impl Engine {
    /// Returns whether workers or publishers use the database or wait for it.
    pub fn has_busy_workers(&self) -> bool {
        self.0.batchers.have_workers()
    }

    /// Pauses after a transaction that took `took`, if workers or publishers use the database or wait for it.
    pub async fn yield_to_workers(&self, took: Duration) {
        if self.0.batchers.have_workers() {
            tokio::time::sleep(pause_after(took)).await;
        }
    }

    /// Delays the next batch of outcomes of pushes, if workers or publishers need the database. Failures
    /// are judged, and may be copied to the dead letters; other outcomes cost little.
    pub(crate) fn pause_push_outcomes(&self, load: PushBatchLoad) {
        let Some(oldest) = load.oldest_outcome.filter(|_| load.has_failures) else { return };
        let batchers = &self.0.batchers;
        if batchers.have_workers() && may_pause(oldest.elapsed(), batchers.settle_pushes.queued()) {
            self.0.push_pause.begin(pause_after(load.began.elapsed()));
        }
    }
}

fn may_pause(waited: Duration, queued: usize) -> bool {
    waited < MAX_OUTCOME_AGE && queued <= MAX_OUTCOMES_QUEUED
}

fn pause_after(took: Duration) -> Duration {
    (took * PAUSE_FACTOR).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_longer_than_its_transaction_but_bounded() {
        assert_eq!(pause_after(Duration::from_millis(10)), Duration::from_millis(60));
        assert_eq!(pause_after(Duration::from_secs(4)), MAX_PAUSE);
    }

    #[test]
    fn there_is_no_pause_while_outcomes_are_late_or_many() {
        assert!(may_pause(Duration::from_millis(1_999), MAX_OUTCOMES_QUEUED));
        assert!(!may_pause(MAX_OUTCOME_AGE, 0));
        assert!(!may_pause(Duration::ZERO, MAX_OUTCOMES_QUEUED + 1));
    }
}
