//! Low-water marks: where in a queue to begin looking.
//!
//! While anybody holds an old snapshot, PostgreSQL cannot remove what was deleted from
//! `ready`, and every claim would have to step over all of it. So the server remembers, per
//! queue, the place of what it claimed last, and the next claim begins there.
//!
//! A mark is only a hint, and must never hide work for long:
//! - Places grow with every entry, so what comes back to `ready` comes back behind the mark
//!   or, with a higher priority or a late commit, before it; whoever lets it in then lowers
//!   the mark, on this server directly and on others by the word that wakes them.
//! - A word can be lost. The stragglers' service looks at marked queues from their very
//!   beginning every few seconds, and lowers marks that are too high.
//! - Marks are forgotten when there are too many; a queue without one is looked at from its
//!   beginning.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// More marks than this are forgotten, all at once.
const MAX_MARKS: usize = 50_000;

/// A place in a queue, in claim order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Minus the priority.
    pub rank: i16,
    /// The number of the entry.
    pub seq: i64,
}

impl Place {
    /// Before everything.
    pub const BEGINNING: Place = Place { rank: i16::MIN, seq: 0 };
}

/// The marks of one server.
#[derive(Default)]
pub struct Marks(Mutex<HashMap<String, Place>>);

impl Marks {
    /// Where to begin in each of these queues.
    pub fn of(&self, queues: &[String]) -> Vec<Place> {
        let marks = self.lock();
        queues.iter().map(|queue| marks.get(queue).copied().unwrap_or(Place::BEGINNING)).collect()
    }

    /// Something was claimed here: whatever stood before it is gone.
    pub fn raise(&self, queue: &str, place: Place) {
        let mut marks = self.lock();
        if let Some(mark) = marks.get_mut(queue) {
            *mark = place.max(*mark);
            return;
        }
        if marks.len() >= MAX_MARKS {
            marks.clear();
        }
        marks.insert(queue.to_owned(), place);
    }

    /// Something entered here: nobody may begin behind it.
    pub fn lower(&self, queue: &str, place: Place) {
        if let Some(mark) = self.lock().get_mut(queue) {
            *mark = place.min(*mark);
        }
    }

    /// All of them, for those who look for stragglers.
    pub fn all(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Forgets them all: words were missed.
    pub fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rank: i16, seq: i64) -> Place {
        Place { rank, seq }
    }

    fn mark(marks: &Marks) -> Place {
        marks.of(&["q".to_owned()])[0]
    }

    #[test]
    fn a_queue_without_a_mark_is_looked_at_from_its_beginning() {
        let marks = Marks::default();
        marks.lower("q", at(0, 7));
        assert_eq!(mark(&marks), Place::BEGINNING);
        assert!(Place::BEGINNING < at(-100, 1));
    }

    #[test]
    fn claims_raise_a_mark_and_entries_before_it_lower_it() {
        let marks = Marks::default();
        marks.raise("q", at(0, 7));
        marks.raise("q", at(0, 5));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower("q", at(0, 9));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower("q", at(-3, 12));
        assert_eq!(mark(&marks), at(-3, 12));
    }
}
