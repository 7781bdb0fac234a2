//! A copy of something that the database holds.
//!
//! Numbers of the database do not tell which of two copies is the newer one: after a restore they
//! are lower than before. So loads are numbered here, when they begin, and of two that run at the
//! same time the one that began later stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The latest copy.
#[derive(Debug, Default)]
pub struct Latest<T> {
    begun: AtomicU64,
    present: RwLock<(u64, Arc<T>)>,
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

    /// Keeps what was loaded, unless a load that began later has ended already. Returns whether it
    /// is kept.
    pub fn finish(&self, load: Load, value: T) -> bool {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        let is_latest = load.0 > present.0;
        if is_latest {
            *present = (load.0, Arc::new(value));
        }
        is_latest
    }

    /// Returns the copy.
    pub fn get(&self) -> Arc<T> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_loads_at_the_same_time_the_one_that_began_later_stays() {
        let latest = Latest::<&str>::default();
        let (earlier, later) = (latest.begin(), latest.begin());
        assert!(latest.finish(later, "later"));
        assert!(!latest.finish(earlier, "earlier"));
        assert_eq!(*latest.get(), "later");
        let next = latest.begin();
        assert!(latest.finish(next, "next"));
        assert_eq!(*latest.get(), "next");
    }
}
