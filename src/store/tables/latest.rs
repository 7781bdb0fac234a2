//! A copy of something that the database holds.
//!
//! Numbers of the database do not tell which of two copies is the newer one: after a restore they
//! are lower than before. So loads are numbered here, when they begin, and of two that run at the
//! same time the one that began later stays. It may have read earlier, though: where that matters,
//! and the two differ, the caller loads once more ([`Finished::has_overlapped`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The latest copy.
#[derive(Debug, Default)]
pub struct Latest<T> {
    begun: AtomicU64,
    present: RwLock<Present<T>>,
}

#[derive(Debug, Default)]
struct Present<T> {
    /// The number of its load.
    number: u64,
    /// How many loads had begun when it ended.
    begun: u64,
    value: Arc<T>,
}

/// What became of a load.
#[derive(Debug)]
pub struct Finished<T> {
    /// The copy that was there before.
    pub before: Arc<T>,
    /// Whether what was loaded is kept.
    pub is_kept: bool,
    /// Whether the load of the copy before ended after this one began. Either may have read first.
    pub has_overlapped: bool,
}

/// A load that has begun.
#[derive(Debug)]
#[must_use = "what is loaded is kept by `finish`"]
pub struct Load(u64);

impl<T> Latest<T> {
    /// Begins a load. Call it before anything is read.
    pub fn begin(&self) -> Load {
        Load(self.begun.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Keeps what was loaded, unless a load that began later has ended already.
    pub fn finish(&self, load: Load, value: T) -> Finished<T> {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        let before = present.value.clone();
        let is_kept = load.0 > present.number;
        let has_overlapped = present.begun >= load.0;
        if is_kept {
            let begun = self.begun.load(Ordering::SeqCst);
            *present = Present { number: load.0, begun, value: Arc::new(value) };
        }
        Finished { before, is_kept, has_overlapped }
    }

    /// Returns the copy.
    pub fn get(&self) -> Arc<T> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_loads_at_the_same_time_the_one_that_began_later_stays() {
        let latest = Latest::<&str>::default();
        let (earlier, later) = (latest.begin(), latest.begin());
        assert!(latest.finish(later, "later").is_kept);
        assert!(!latest.finish(earlier, "earlier").is_kept);
        assert_eq!(*latest.get(), "later");
        let next = latest.begin();
        assert!(latest.finish(next, "next").is_kept);
        assert_eq!(*latest.get(), "next");
    }

    #[test]
    fn a_load_is_told_if_another_one_ended_since_it_began() {
        let latest = Latest::<&str>::default();
        let (earlier, later) = (latest.begin(), latest.begin());
        assert!(!latest.finish(earlier, "earlier").has_overlapped);
        assert!(latest.finish(later, "later").has_overlapped);
        let next = latest.begin();
        assert!(!latest.finish(next, "next").has_overlapped);
    }
}
