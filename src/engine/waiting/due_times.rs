//! Where to begin looking for what waits for a moment.
//!
//! Work that was due, expired or held leaves entries behind in the indexes by time, and while
//! anybody holds an old snapshot they stay there. So each kind of moment has a mark, kept by
//! the rules of [`crate::engine::waiting::low_water_marks`]: it rises to the first moment that anything waits for, and
//! whoever lets something wait for an earlier one lowers it after the commit.

use chrono::{DateTime, Utc};

use crate::store::tables::deliveries::EarliestTimes;

use crate::engine::waiting::low_water_marks::{LowWaterMarks, QueuePosition, QueueScan};

/// What can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueKind {
    /// Delayed or retrying work falls due.
    Due,
    /// Work becomes worthless.
    Expiry,
    /// A lease is to be looked at.
    LeaseEnd,
}

/// The marks of one server.
pub struct DueTimes {
    names: [String; 3],
    marks: LowWaterMarks,
}

impl Default for DueTimes {
    fn default() -> Self {
        DueTimes { names: ["due_at", "expires_at", "look_at"].map(str::to_owned), marks: LowWaterMarks::default() }
    }
}

impl DueTimes {
    /// Begins to look.
    pub fn scan(&self, moment: DueKind) -> DueScan<'_> {
        let name = &self.names[moment as usize];
        DueScan { name, scan: self.marks.scan(std::slice::from_ref(name)) }
    }

    /// Forgets the marks, so that the next looks begin at the very beginning.
    pub fn forget(&self) {
        self.marks.forget();
    }

    /// Something waits for these: nobody may begin behind them.
    pub fn wait_for(&self, first: &EarliestTimes) {
        let due_times =
            [(DueKind::Due, first.due_at), (DueKind::Expiry, first.expires_at), (DueKind::LeaseEnd, first.look_at)];
        for (moment, at) in due_times {
            if let Some(at) = at {
                self.marks.lower(&self.names[moment as usize], QueuePosition::at(at));
            }
        }
    }
}

/// A look, from its mark on; ends when it is dropped.
pub struct DueScan<'a> {
    name: &'a str,
    scan: QueueScan<'a>,
}

impl DueScan<'_> {
    /// Where to begin; none: at the very beginning.
    pub fn from(&self) -> Option<DateTime<Utc>> {
        self.scan.from[0].moment()
    }

    /// The first moment that anything waits for is this: nothing lies before it.
    pub fn found_head(&self, head: DateTime<Utc>) {
        self.scan.raise(self.name, QueuePosition::at(head));
    }
}
