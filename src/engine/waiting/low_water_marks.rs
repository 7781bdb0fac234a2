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
//! - A word can be lost. The catch-up scan looks at marked queues from their very
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
pub struct QueuePosition {
    /// Minus the priority.
    pub rank: i16,
    /// The number of the entry.
    pub seq: i64,
}

impl QueuePosition {
    /// Before everything.
    pub const BEGINNING: QueuePosition = QueuePosition { rank: i16::MIN, seq: 0 };

    /// Behind everything.
    pub const END: QueuePosition = QueuePosition { rank: i16::MAX, seq: i64::MAX };

    /// A moment, as a place in a queue that is ordered by time.
    pub fn at(moment: DateTime<Utc>) -> QueuePosition {
        QueuePosition { rank: 0, seq: moment.timestamp_micros() }
    }

    /// The moment; none before everything.
    pub fn moment(self) -> Option<DateTime<Utc>> {
        if self == QueuePosition::BEGINNING { None } else { DateTime::from_timestamp_micros(self.seq) }
    }
}

/// The marks of one server.
#[derive(Default)]
pub struct LowWaterMarks(Mutex<HashMap<String, Mark>>);

struct Mark {
    at: QueuePosition,
    /// How many claims are looking at the queue.
    lookers: u32,
    /// The first place that was let in since the first of them began.
    let_in: Option<QueuePosition>,
}

/// A look at some queues, from their marks on; ends when it is dropped.
pub struct QueueScan<'a> {
    marks: &'a LowWaterMarks,
    queues: &'a [String],
    /// Where to begin in each.
    pub from: Vec<QueuePosition>,
}

impl LowWaterMarks {
    /// Begins to look at queues.
    pub fn scan<'a>(&'a self, queues: &'a [String]) -> QueueScan<'a> {
        let mut marks = self.lock();
        if marks.len() + queues.len() > MAX_MARKS {
            marks.retain(|_, mark| mark.lookers > 0);
        }
        let begin = |queue: &String| {
            let fresh = Mark { at: QueuePosition::BEGINNING, lookers: 0, let_in: None };
            let mark = marks.entry(queue.clone()).or_insert(fresh);
            mark.lookers += 1;
            mark.at
        };
        let from = queues.iter().map(begin).collect();
        QueueScan { marks: self, queues, from }
    }

    /// Where to begin in each of these queues, for a mere glance.
    pub fn of(&self, queues: &[String]) -> Vec<QueuePosition> {
        let marks = self.lock();
        queues.iter().map(|queue| marks.get(queue).map_or(QueuePosition::BEGINNING, |mark| mark.at)).collect()
    }

    /// Something was let in here: nobody may begin behind it.
    pub fn lower(&self, queue: &str, position: QueuePosition) {
        if let Some(mark) = self.lock().get_mut(queue) {
            mark.at = position.min(mark.at);
            if mark.lookers > 0 {
                mark.let_in = Some(mark.let_in.map_or(position, |first| position.min(first)));
            }
        }
    }

    /// The queues that are not looked at from their beginning, for those who look for catch-up scan.
    pub fn all(&self) -> Vec<String> {
        let marks = self.lock();
        marks.iter().filter(|(_, mark)| mark.at > QueuePosition::BEGINNING).map(|(queue, _)| queue.clone()).collect()
    }

    /// Forgets them all: words were missed.
    pub fn forget(&self) {
        for mark in self.lock().values_mut() {
            mark.at = QueuePosition::BEGINNING;
            mark.let_in = Some(QueuePosition::BEGINNING);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueScan<'_> {
    /// Whatever was before this is gone.
    pub fn raise(&self, queue: &str, head: QueuePosition) {
        if let Some(mark) = self.marks.lock().get_mut(queue) {
            let safe = mark.let_in.map_or(head, |first| head.min(first));
            mark.at = safe.max(mark.at);
        }
    }
}

impl Drop for QueueScan<'_> {
    fn drop(&mut self) {
        let mut marks = self.marks.lock();
        for queue in self.queues {
            let Some(mark) = marks.get_mut(queue) else { continue };
            mark.lookers -= 1;
            if mark.lookers == 0 {
                mark.let_in = None;
                if mark.at == QueuePosition::BEGINNING {
                    marks.remove(queue);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rank: i16, seq: i64) -> QueuePosition {
        QueuePosition { rank, seq }
    }

    fn queues() -> Vec<String> {
        vec!["q".to_owned()]
    }

    fn mark(marks: &LowWaterMarks) -> QueuePosition {
        marks.of(&queues())[0]
    }

    #[test]
    fn a_queue_without_a_mark_is_looked_at_from_its_beginning() {
        let marks = LowWaterMarks::default();
        marks.lower("q", at(0, 7));
        assert_eq!(mark(&marks), QueuePosition::BEGINNING);
        assert!(QueuePosition::BEGINNING < at(-100, 1));
    }

    #[test]
    fn looks_raise_a_mark_and_entries_before_it_lower_it() {
        let (marks, queues) = (LowWaterMarks::default(), queues());
        marks.scan(&queues).raise("q", at(0, 7));
        marks.scan(&queues).raise("q", at(0, 5));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower("q", at(0, 9));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower("q", at(-3, 12));
        assert_eq!(mark(&marks), at(-3, 12));
    }

    #[test]
    fn what_is_let_in_during_a_look_is_not_passed_by_it() {
        let (marks, queues) = (LowWaterMarks::default(), queues());
        let scan = marks.scan(&queues);
        marks.lower("q", at(0, 95));
        scan.raise("q", at(0, 100));
        drop(scan);
        assert_eq!(mark(&marks), at(0, 95));
    }

    #[test]
    fn a_moment_is_a_place() {
        let moment = DateTime::from_timestamp_micros(1_700_000_000_123_456).unwrap();
        assert_eq!(QueuePosition::at(moment).moment(), Some(moment));
        assert!(
            QueuePosition::BEGINNING.moment().is_none()
                && QueuePosition::BEGINNING < QueuePosition::at(DateTime::UNIX_EPOCH)
        );
    }

    #[test]
    fn looks_that_find_nothing_leave_nothing_behind() {
        let (marks, queues) = (LowWaterMarks::default(), queues());
        drop(marks.scan(&queues));
        assert!(marks.all().is_empty() && marks.lock().is_empty());
    }
}
