//! Where to begin looking for what waits for a moment.
//!
//! Work that was due, expired or held leaves entries behind in the indexes by time, and while
//! anybody holds an old snapshot they stay there. So each kind of moment has a mark, kept by
//! the rules of [`crate::engine::waiting::low_water_marks`]: it rises to the first moment that anything waits for, and
//! whoever lets something wait for an earlier one lowers it after the commit.

use chrono::{DateTime, Utc};

use crate::store::deliveries::FirstMoments;

use crate::engine::waiting::low_water_marks::{Look, Marks, Place};

/// What can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Delayed or retrying work falls due.
    Due,
    /// Work becomes worthless.
    Expiry,
    /// A lease is to be looked at.
    LeaseEnd,
}

/// The marks of one server.
pub struct Moments {
    names: [String; 3],
    marks: Marks,
}

impl Default for Moments {
    fn default() -> Self {
        Moments { names: ["due_at", "expires_at", "look_at"].map(str::to_owned), marks: Marks::default() }
    }
}

impl Moments {
    /// Begins to look.
    pub fn look(&self, moment: Moment) -> MomentLook<'_> {
        let name = &self.names[moment as usize];
        MomentLook { name, look: self.marks.look(std::slice::from_ref(name)) }
    }

    /// Forgets the marks, so that the next looks begin at the very beginning.
    pub fn forget(&self) {
        self.marks.forget();
    }

    /// Something waits for these: nobody may begin behind them.
    pub fn wait_for(&self, first: &FirstMoments) {
        let moments =
            [(Moment::Due, first.due_at), (Moment::Expiry, first.expires_at), (Moment::LeaseEnd, first.look_at)];
        for (moment, at) in moments {
            if let Some(at) = at {
                self.marks.lower(&self.names[moment as usize], Place::at(at));
            }
        }
    }
}

/// A look, from its mark on; ends when it is dropped.
pub struct MomentLook<'a> {
    name: &'a str,
    look: Look<'a>,
}

impl MomentLook<'_> {
    /// Where to begin; none: at the very beginning.
    pub fn from(&self) -> Option<DateTime<Utc>> {
        self.look.from[0].moment()
    }

    /// The first moment that anything waits for is this: nothing lies before it.
    pub fn found_head(&self, head: DateTime<Utc>) {
        self.look.raise(self.name, Place::at(head));
    }
}
