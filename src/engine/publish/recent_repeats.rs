//! Whether publishers have lately sent events again.
//!
//! Usually all idempotency keys of a batch are new. A statement that expects that costs much less than one that looks each
//! key up, but fails if one is taken, and the batch is tried again. Repeats rarely come alone: a publisher that has lost
//! its connection repeats all that it had under way. So after a repeat, batches look their keys up for a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time for which batches look their keys up after a repeat.
const LOOK_UP_FOR: Duration = Duration::from_secs(5);

/// The last repeat that this server has seen.
#[derive(Default)]
pub(crate) struct RecentRepeats(Mutex<Option<Instant>>);

impl RecentRepeats {
    /// Returns whether there were repeats a short while before `now`.
    pub(super) fn are_there(&self, now: Instant) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| now.duration_since(last) < LOOK_UP_FOR)
    }

    /// Notes a repeat.
    pub(super) fn note(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_remembered_for_a_while() {
        let (repeats, now) = (RecentRepeats::default(), Instant::now());
        assert!(!repeats.are_there(now));
        repeats.note(now);
        assert!(repeats.are_there(now + LOOK_UP_FOR - Duration::from_millis(1)));
        assert!(!repeats.are_there(now + LOOK_UP_FOR));
    }
}
