//! A snapshot of data in the database.
//!
//! A version number in the database cannot tell which of two snapshots is newer, since after a restore
//! it is lower than before. Loads are therefore numbered here when they begin, and of two concurrent
//! loads the one that began later is kept. It may still have read earlier. Where that matters and the
//! two differ, the caller loads again ([`Finished::has_overlapped`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The latest snapshot of a value.
#[derive(Debug, Default)]
pub(crate) struct Latest<T> {
    loads_begun: AtomicU64,
    present: RwLock<Present<T>>,
}

#[derive(Debug, Default)]
struct Present<T> {
    /// The number of the load that read the value.
    number: u64,
    /// The number of loads that had begun when that load finished.
    loads_begun: u64,
    value: Arc<T>,
}

/// The result of [`Latest::finish`].
#[derive(Debug)]
pub(crate) struct Finished<T> {
    /// The snapshot before this load.
    pub previous: Arc<T>,
    /// Whether the loaded value replaced it.
    pub is_kept: bool,
    /// Whether the load of the previous snapshot finished after this load began. Either may have read
    /// first.
    pub has_overlapped: bool,
}

/// A load that has begun.
#[derive(Debug)]
#[must_use = "a loaded value is kept by `finish`"]
pub(crate) struct Load(u64);

impl<T> Latest<T> {
    /// Begins a load. Call it before anything is read.
    pub(crate) fn begin(&self) -> Load {
        Load(self.loads_begun.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Keeps the loaded value, unless a load that began later has already finished.
    pub(crate) fn finish(&self, load: Load, value: T) -> Finished<T> {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        let previous = present.value.clone();
        let is_kept = load.0 > present.number;
        let has_overlapped = present.loads_begun >= load.0;
        if is_kept {
            let loads_begun = self.loads_begun.load(Ordering::SeqCst);
            *present = Present { number: load.0, loads_begun, value: Arc::new(value) };
        }
        Finished { previous, is_kept, has_overlapped }
    }

    /// Returns the latest snapshot.
    pub(crate) fn get(&self) -> Arc<T> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_concurrent_loads_the_one_that_began_later_is_kept() {
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
    fn a_load_overlaps_if_another_one_finished_since_it_began() {
        let latest = Latest::<&str>::default();
        let (earlier, later) = (latest.begin(), latest.begin());
        assert!(!latest.finish(earlier, "earlier").has_overlapped);
        assert!(latest.finish(later, "later").has_overlapped);
        let next = latest.begin();
        assert!(!latest.finish(next, "next").has_overlapped);
    }
}
