//! Due times: where scans of the indexes by time begin.
//!
//! Deliveries that were due, expired or leased leave dead entries behind in the indexes by time. They
//! stay there while any transaction holds an old snapshot. Therefore each kind of due time has a
//! low-water mark, which follows the rules of [`crate::engine::waiting::low_water_marks`]. It rises to
//! the earliest time that any delivery waits for. A transaction that makes a delivery wait for an
//! earlier time lowers it after the commit.

use chrono::{DateTime, Utc};

use crate::store::tables::deliveries::EarliestTimes;

use crate::engine::waiting::low_water_marks::{LowWaterMarks, QueuePosition, QueueScan};

/// The kinds of times that a delivery can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DueKind {
    /// A delayed or retried delivery falls due.
    Due,
    /// A delivery expires.
    Expiry,
    /// A lease must be checked.
    LeaseEnd,
}

impl DueKind {
    /// Returns the kind as the only queue of a scan.
    fn as_queues(self) -> &'static [DueKind] {
        match self {
            DueKind::Due => &[DueKind::Due],
            DueKind::Expiry => &[DueKind::Expiry],
            DueKind::LeaseEnd => &[DueKind::LeaseEnd],
        }
    }
}

/// The low-water marks of one server, one for each kind of due time. The indexes by time serve all namespaces.
#[derive(Default)]
pub struct DueTimes {
    marks: LowWaterMarks<DueKind>,
}

impl DueTimes {
    /// Begins a scan, which ends when it is dropped.
    pub fn scan(&self, kind: DueKind) -> DueScan<'_> {
        DueScan { kind, scan: self.marks.scan(kind.as_queues()) }
    }

    /// Resets the low-water marks: the next scans begin at the start of the indexes.
    pub fn forget(&self) {
        self.marks.forget();
    }

    /// Lowers the low-water marks to `first`, the earliest times that deliveries now wait for.
    pub fn wait_for(&self, first: &EarliestTimes) {
        let due_times =
            [(DueKind::Due, first.due_at), (DueKind::Expiry, first.expires_at), (DueKind::LeaseEnd, first.look_at)];
        for (kind, at) in due_times {
            if let Some(at) = at {
                self.marks.lower(&kind, QueuePosition::at(at));
            }
        }
    }
}

/// A scan that begins at its low-water mark. It ends when it is dropped.
pub struct DueScan<'a> {
    kind: DueKind,
    scan: QueueScan<'a, DueKind>,
}

impl DueScan<'_> {
    /// Returns the time at which the scan begins, or `None` for the start of the index.
    pub fn from(&self) -> Option<DateTime<Utc>> {
        self.scan.from[0].time()
    }

    /// Raises the low-water mark to `head`, the earliest time that any delivery waits for.
    pub fn found_head(&self, head: DateTime<Utc>) {
        self.scan.raise(&self.kind, QueuePosition::at(head));
    }
}
