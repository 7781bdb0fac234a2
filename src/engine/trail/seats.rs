//! How many streams are open, and how many may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::ids::NamespaceId;
use crate::error::Error;

/// The streams of one server, counted by namespace. A namespace may have half of them, so that it cannot shut out the
/// others.
#[derive(Debug)]
pub(super) struct Seats {
    max: usize,
    taken: Mutex<HashMap<NamespaceId, usize>>,
}

/// The seat of one stream. Dropping it frees the seat.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    namespace: NamespaceId,
}

impl Seats {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Seats { max, taken: Mutex::default() })
    }

    /// Takes a seat, or returns an error if there is none.
    pub(super) fn take(self: &Arc<Self>, namespace: NamespaceId) -> Result<Seat, Error> {
        let mut taken = self.lock();
        let of_namespace = self.max.div_ceil(2);
        if taken.values().sum::<usize>() >= self.max {
            return Err(Error::TooManyStreams { limit: self.max, of: "server" });
        }
        let own = taken.entry(namespace).or_default();
        if *own >= of_namespace {
            return Err(Error::TooManyStreams { limit: of_namespace, of: "namespace" });
        }
        *own += 1;
        drop(taken);
        Ok(Seat { seats: self.clone(), namespace })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the number of streams.
    pub(super) fn taken(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NamespaceId, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if let Some(own) = taken.get_mut(&self.namespace) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_may_have_half_of_the_seats_and_a_freed_one_can_be_taken_again() {
        let seats = Seats::new(3);
        let (north, south) = (NamespaceId(1), NamespaceId(2));
        let first = seats.take(north).expect("a seat");
        let _second = seats.take(north).expect("a seat");
        assert!(matches!(seats.take(north), Err(Error::TooManyStreams { limit: 2, of: "namespace" })));
        let third = seats.take(south).expect("a seat");
        assert!(matches!(seats.take(south), Err(Error::TooManyStreams { limit: 3, of: "server" })));
        drop(first);
        let _fourth = seats.take(south).expect("a seat");
        assert!(!seats.is_empty());
        drop(third);
        assert_eq!(seats.lock().len(), 2);
    }
}
