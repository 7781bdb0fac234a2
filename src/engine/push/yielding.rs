//! Giving pushes up makes room for workers.
//!
//! Thousands of pushes can end at once, and nobody waits for their ends to be on record. Workers
//! and publishers wait for theirs. Where both need the database, whoever gives many pushes up rests
//! between its transactions, so that workers keep most of the database to themselves.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Engine;
use crate::engine::batching::deadline::WithDeadline;
use crate::engine::settle::{SettleRequest, Settlement};

/// How many times as long as it took a transaction is rested from.
const REST: u32 = 6;

/// The longest rest.
const LONGEST_REST: Duration = Duration::from_millis(200);

/// Outcomes that have waited for longer are recorded without rests, or the claims of what was sent
/// would run out.
const MAY_WAIT: Duration = Duration::from_secs(2);

/// While more outcomes than this wait, they are recorded without rests. The dispatcher claims nothing
/// while as many wait, so there are more only if many requests under way have ended at once.
const MAY_QUEUE: usize = 1_000;

/// Until when no outcomes of pushes are recorded.
#[derive(Default)]
pub(crate) struct Rest(Mutex<Option<Instant>>);

impl Rest {
    /// Waits for its end.
    pub async fn over(&self) {
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
    /// The age of an outcome counts from the end of its push: one that was refused and is offered again
    /// is as old as before.
    oldest_outcome: Option<Instant>,
}

impl PushBatchLoad {
    pub fn of(requests: &[WithDeadline<SettleRequest>]) -> Self {
        let calls = || requests.iter().flat_map(|timed| timed.call.iter());
        PushBatchLoad {
            began: Instant::now(),
            has_failures: calls().any(|call| matches!(call.settlement, Settlement::Fail { .. })),
            oldest_outcome: calls().filter_map(|call| call.push_ended_at).min(),
        }
    }
}

impl Engine {
    /// Rests from a transaction, if workers or publishers are at the database or wait for it.
    pub async fn yield_to_workers(&self, took: Duration) {
        if self.0.batchers.have_workers() {
            tokio::time::sleep(rest_from(took)).await;
        }
    }

    /// Delays the next batch of outcomes of pushes, if workers or publishers need the database. Failures
    /// are judged, and may be copied to the dead letters; other outcomes cost little.
    pub(crate) fn rest_from_outcomes(&self, load: PushBatchLoad) {
        let Some(oldest) = load.oldest_outcome.filter(|_| load.has_failures) else { return };
        let batchers = &self.0.batchers;
        if batchers.have_workers() && may_rest(oldest.elapsed(), batchers.settle_pushes.queued()) {
            self.0.outcomes_rest.begin(rest_from(load.began.elapsed()));
        }
    }
}

fn may_rest(waited: Duration, queued: usize) -> bool {
    waited < MAY_WAIT && queued <= MAY_QUEUE
}

fn rest_from(took: Duration) -> Duration {
    (took * REST).min(LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_longer_than_what_it_is_from_but_bounded() {
        assert_eq!(rest_from(Duration::from_millis(10)), Duration::from_millis(60));
        assert_eq!(rest_from(Duration::from_secs(4)), LONGEST_REST);
    }

    #[test]
    fn there_is_no_rest_while_outcomes_are_late_or_many() {
        assert!(may_rest(Duration::from_millis(1_999), MAY_QUEUE));
        assert!(!may_rest(MAY_WAIT, 0));
        assert!(!may_rest(Duration::ZERO, MAY_QUEUE + 1));
    }
}
