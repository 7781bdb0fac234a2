//! Low-water marks: where in a queue, or in time, to begin looking.
//!
//! While anybody holds an old snapshot, PostgreSQL cannot remove what was deleted from
//! `ready`, and every claim would have to step over all of it. So the server remembers, per
//! queue, the place of what it claimed last, and the next claim begins there.
//!
//! A mark is only a hint, and must never hide work for long:
//! - A claim tells up to where nothing is left: behind what it claimed, if it had to skip
//!   nothing, else where the head of the queue stood, whether it could be had or not. Marks
//!   are raised to that, and never past what was there and left.
//! - Whoever lets something into `ready` lowers the mark to it, on this server directly and
//!   on others by the word that wakes them. Where that happens while a claim is under way,
//!   which may not have seen it, the claim raises the mark no further than that.
//! - A word can be lost. The stragglers' service looks at marked queues from their very
//!   beginning every few seconds, and lowers marks that are too high.
//! - Marks are forgotten when there are too many; a queue without one is looked at from its
//!   beginning.
//!
//! What waits for a moment is looked for in the same way: whatever waits for its due time is
//! one queue, and a moment is a place in it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
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

    /// Behind everything.
    pub const END: Place = Place { rank: i16::MAX, seq: i64::MAX };

    /// A moment, as a place in a queue that is ordered by time.
    pub fn at(moment: DateTime<Utc>) -> Place {
        Place { rank: 0, seq: moment.timestamp_micros() }
    }

    /// The moment; none before everything.
    pub fn moment(self) -> Option<DateTime<Utc>> {
        if self == Place::BEGINNING { None } else { DateTime::from_timestamp_micros(self.seq) }
    }
}

/// The marks of one server.
#[derive(Default)]
pub struct Marks(Mutex<HashMap<String, Mark>>);

struct Mark {
    at: Place,
    /// How many claims are looking at the queue.
    lookers: u32,
    /// The first place that was let in since the first of them began.
    let_in: Option<Place>,
}

/// A look at some queues, from their marks on; ends when it is dropped.
pub struct Look<'a> {
    marks: &'a Marks,
    queues: &'a [String],
    /// Where to begin in each.
    pub from: Vec<Place>,
}

impl Marks {
    /// Begins to look at queues.
    pub fn look<'a>(&'a self, queues: &'a [String]) -> Look<'a> {
        let mut marks = self.lock();
        if marks.len() + queues.len() > MAX_MARKS {
            marks.retain(|_, mark| mark.lookers > 0);
        }
        let begin = |queue: &String| {
            let fresh = Mark { at: Place::BEGINNING, lookers: 0, let_in: None };
            let mark = marks.entry(queue.clone()).or_insert(fresh);
            mark.lookers += 1;
            mark.at
        };
        let from = queues.iter().map(begin).collect();
        Look { marks: self, queues, from }
    }

    /// Where to begin in each of these queues, for a mere glance.
    pub fn of(&self, queues: &[String]) -> Vec<Place> {
        let marks = self.lock();
        queues.iter().map(|queue| marks.get(queue).map_or(Place::BEGINNING, |mark| mark.at)).collect()
    }

    /// Something was let in here: nobody may begin behind it.
    pub fn lower(&self, queue: &str, place: Place) {
        if let Some(mark) = self.lock().get_mut(queue) {
            mark.at = place.min(mark.at);
            if mark.lookers > 0 {
                mark.let_in = Some(mark.let_in.map_or(place, |first| place.min(first)));
            }
        }
    }

    /// The queues that are not looked at from their beginning, for those who look for stragglers.
    pub fn all(&self) -> Vec<String> {
        let marks = self.lock();
        marks.iter().filter(|(_, mark)| mark.at > Place::BEGINNING).map(|(queue, _)| queue.clone()).collect()
    }

    /// Forgets them all: words were missed.
    pub fn forget(&self) {
        for mark in self.lock().values_mut() {
            mark.at = Place::BEGINNING;
            mark.let_in = Some(Place::BEGINNING);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look<'_> {
    /// Whatever was before this is gone.
    pub fn raise(&self, queue: &str, head: Place) {
        if let Some(mark) = self.marks.lock().get_mut(queue) {
            let safe = mark.let_in.map_or(head, |first| head.min(first));
            mark.at = safe.max(mark.at);
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let mut marks = self.marks.lock();
        for queue in self.queues {
            let Some(mark) = marks.get_mut(queue) else { continue };
            mark.lookers -= 1;
            if mark.lookers == 0 {
                mark.let_in = None;
                if mark.at == Place::BEGINNING {
                    marks.remove(queue);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rank: i16, seq: i64) -> Place {
        Place { rank, seq }
    }

    fn queues() -> Vec<String> {
        vec!["q".to_owned()]
    }

    fn mark(marks: &Marks) -> Place {
        marks.of(&queues())[0]
    }

    #[test]
    fn a_queue_without_a_mark_is_looked_at_from_its_beginning() {
        let marks = Marks::default();
        marks.lower("q", at(0, 7));
        assert_eq!(mark(&marks), Place::BEGINNING);
        assert!(Place::BEGINNING < at(-100, 1));
    }

    #[test]
    fn looks_raise_a_mark_and_entries_before_it_lower_it() {
        let (marks, queues) = (Marks::default(), queues());
        marks.look(&queues).raise("q", at(0, 7));
        marks.look(&queues).raise("q", at(0, 5));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower("q", at(0, 9));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower("q", at(-3, 12));
        assert_eq!(mark(&marks), at(-3, 12));
    }

    #[test]
    fn what_is_let_in_during_a_look_is_not_passed_by_it() {
        let (marks, queues) = (Marks::default(), queues());
        let look = marks.look(&queues);
        marks.lower("q", at(0, 95));
        look.raise("q", at(0, 100));
        drop(look);
        assert_eq!(mark(&marks), at(0, 95));
    }

    #[test]
    fn a_moment_is_a_place() {
        let moment = DateTime::from_timestamp_micros(1_700_000_000_123_456).unwrap();
        assert_eq!(Place::at(moment).moment(), Some(moment));
        assert!(Place::BEGINNING.moment().is_none() && Place::BEGINNING < Place::at(DateTime::UNIX_EPOCH));
    }

    #[test]
    fn looks_that_find_nothing_leave_nothing_behind() {
        let (marks, queues) = (Marks::default(), queues());
        drop(marks.look(&queues));
        assert!(marks.all().is_empty() && marks.lock().is_empty());
    }
}
