//! Low-water marks: the positions at which scans of queues begin.
//!
//! While any transaction holds an old snapshot, PostgreSQL cannot remove deleted rows of `ready`, and
//! every claim would have to skip all of them. Therefore the server remembers for each queue up to where
//! nothing is left, and the next claim begins there.
//!
//! A low-water mark is only a hint, and must never hide work for long:
//! - A claim reports up to where nothing is left. If it skipped nothing, that is the position behind what
//!   it claimed. Otherwise it is the head of the queue that it saw, even if that was locked. The mark
//!   rises to this position, and never past an entry that was seen and left.
//! - A transaction that inserts into `ready` lowers the mark after the commit, on this server directly
//!   and on other servers by the notification that wakes them. A claim that is under way at that time may
//!   not have seen the entry, so it raises the mark no further than to that entry.
//! - A notification can be lost. Every few seconds the catch-up scan reads all queues that have a mark
//!   from their start, and lowers marks that are too high.
//! - If there are too many marks, they are dropped. A queue without a mark is scanned from its start.
//!
//! The indexes by time are scanned in the same way: each kind of due time is one queue, and a time is a
//! position in it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::store::tables::ready::QueueKey;

/// The maximum number of marks. If there are more, all marks without a scan under way are dropped.
const MAX_MARKS: usize = 50_000;

/// A position in a queue, in claim order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueuePosition {
    /// The negated priority.
    pub rank: i16,
    /// The sequence number of the entry.
    pub seq: i64,
}

impl QueuePosition {
    /// The position before all entries.
    pub const BEGINNING: QueuePosition = QueuePosition { rank: i16::MIN, seq: 0 };

    /// The position behind all entries.
    pub const END: QueuePosition = QueuePosition { rank: i16::MAX, seq: i64::MAX };

    /// Returns the position of a time in a queue that is ordered by time.
    pub fn at(time: DateTime<Utc>) -> QueuePosition {
        QueuePosition { rank: 0, seq: time.timestamp_micros() }
    }

    /// Returns the time of a position in a queue that is ordered by time, or `None` for the beginning.
    pub fn time(self) -> Option<DateTime<Utc>> {
        if self == QueuePosition::BEGINNING { None } else { DateTime::from_timestamp_micros(self.seq) }
    }
}

/// The low-water marks of one server, by queue. `K` identifies a queue: that of a namespace, or a kind of due time.
pub struct LowWaterMarks<K = QueueKey>(Mutex<HashMap<K, Mark>>);

impl<K> Default for LowWaterMarks<K> {
    fn default() -> Self {
        LowWaterMarks(Mutex::default())
    }
}

struct Mark {
    at: QueuePosition,
    /// The number of scans of the queue that are under way.
    scans: u32,
    /// The first position that was inserted since the first of these scans began.
    inserted: Option<QueuePosition>,
}

/// A scan of some queues that begins at their marks. It ends when it is dropped.
pub struct QueueScan<'a, K: Eq + Hash = QueueKey> {
    marks: &'a LowWaterMarks<K>,
    queues: &'a [K],
    /// The position at which the scan of each queue begins.
    pub from: Vec<QueuePosition>,
}

impl<K: Eq + Hash + Clone> LowWaterMarks<K> {
    /// Begins a scan of queues.
    pub fn scan<'a>(&'a self, queues: &'a [K]) -> QueueScan<'a, K> {
        let mut marks = self.lock();
        if marks.len() + queues.len() > MAX_MARKS {
            marks.retain(|_, mark| mark.scans > 0);
        }
        let begin = |queue: &K| {
            let fresh = Mark { at: QueuePosition::BEGINNING, scans: 0, inserted: None };
            let mark = marks.entry(queue.clone()).or_insert(fresh);
            mark.scans += 1;
            mark.at
        };
        let from = queues.iter().map(begin).collect();
        QueueScan { marks: self, queues, from }
    }

    /// Returns the marks of these queues, for readers that do not raise them.
    pub fn of(&self, queues: &[K]) -> Vec<QueuePosition> {
        let marks = self.lock();
        queues.iter().map(|queue| marks.get(queue).map_or(QueuePosition::BEGINNING, |mark| mark.at)).collect()
    }

    /// Lowers the mark of a queue to `position`, where an entry was inserted.
    pub fn lower(&self, queue: &K, position: QueuePosition) {
        if let Some(mark) = self.lock().get_mut(queue) {
            mark.at = position.min(mark.at);
            if mark.scans > 0 {
                mark.inserted = Some(mark.inserted.map_or(position, |first| position.min(first)));
            }
        }
    }

    /// Returns the queues that are not scanned from their start. The catch-up scan reads them.
    pub fn all(&self) -> Vec<K> {
        let marks = self.lock();
        marks.iter().filter(|(_, mark)| mark.at > QueuePosition::BEGINNING).map(|(queue, _)| queue.clone()).collect()
    }

    /// Resets all marks to the beginning, because notifications may have been missed.
    pub fn forget(&self) {
        for mark in self.lock().values_mut() {
            mark.at = QueuePosition::BEGINNING;
            mark.inserted = Some(QueuePosition::BEGINNING);
        }
    }
}

impl<K> LowWaterMarks<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> QueueScan<'_, K> {
    /// Raises the mark of a queue to `head`: no entries are left before it.
    pub fn raise(&self, queue: &K, head: QueuePosition) {
        if let Some(mark) = self.marks.lock().get_mut(queue) {
            let safe = mark.inserted.map_or(head, |first| head.min(first));
            mark.at = safe.max(mark.at);
        }
    }
}

impl<K: Eq + Hash> Drop for QueueScan<'_, K> {
    fn drop(&mut self) {
        let mut marks = self.marks.lock();
        for queue in self.queues {
            let Some(mark) = marks.get_mut(queue) else { continue };
            mark.scans -= 1;
            if mark.scans == 0 {
                mark.inserted = None;
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
    use crate::domain::ids::NamespaceId;

    fn at(rank: i16, seq: i64) -> QueuePosition {
        QueuePosition { rank, seq }
    }

    fn queue(namespace: i32) -> QueueKey {
        QueueKey::of_tag(NamespaceId(namespace), "q")
    }

    fn queues() -> Vec<QueueKey> {
        vec![queue(1)]
    }

    fn mark(marks: &LowWaterMarks) -> QueuePosition {
        marks.of(&queues())[0]
    }

    #[test]
    fn marks_of_two_namespaces_are_independent() {
        let (marks, both) = (LowWaterMarks::default(), [queue(1), queue(2)]);
        marks.scan(&both).raise(&queue(1), at(0, 7));
        marks.lower(&queue(2), at(0, 3));
        assert_eq!(marks.of(&both), [at(0, 7), QueuePosition::BEGINNING]);
    }

    #[test]
    fn a_queue_without_a_mark_is_scanned_from_its_beginning() {
        let marks = LowWaterMarks::default();
        marks.lower(&queue(1), at(0, 7));
        assert_eq!(mark(&marks), QueuePosition::BEGINNING);
        assert!(QueuePosition::BEGINNING < at(-100, 1));
    }

    #[test]
    fn scans_raise_a_mark_and_entries_before_it_lower_it() {
        let (marks, queues) = (LowWaterMarks::default(), queues());
        marks.scan(&queues).raise(&queue(1), at(0, 7));
        marks.scan(&queues).raise(&queue(1), at(0, 5));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower(&queue(1), at(0, 9));
        assert_eq!(mark(&marks), at(0, 7));
        marks.lower(&queue(1), at(-3, 12));
        assert_eq!(mark(&marks), at(-3, 12));
    }

    #[test]
    fn a_scan_does_not_raise_a_mark_past_an_entry_that_was_inserted_during_it() {
        let (marks, queues) = (LowWaterMarks::default(), queues());
        let scan = marks.scan(&queues);
        marks.lower(&queue(1), at(0, 95));
        scan.raise(&queue(1), at(0, 100));
        drop(scan);
        assert_eq!(mark(&marks), at(0, 95));
    }

    #[test]
    fn a_time_is_a_position() {
        let time = DateTime::from_timestamp_micros(1_700_000_000_123_456).unwrap();
        assert_eq!(QueuePosition::at(time).time(), Some(time));
        assert!(
            QueuePosition::BEGINNING.time().is_none()
                && QueuePosition::BEGINNING < QueuePosition::at(DateTime::UNIX_EPOCH)
        );
    }

    #[test]
    fn scans_that_find_nothing_keep_no_marks() {
        let (marks, queues) = (LowWaterMarks::default(), queues());
        drop(marks.scan(&queues));
        assert!(marks.all().is_empty() && marks.lock().is_empty());
    }
}
