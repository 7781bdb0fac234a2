//! What matching costs, counted in bytes looked at.
//!
//! Time would be the wrong measure: the same event and the same filter must give the same result
//! on a busy server. So each filter has a [`Work`] with a budget in bytes, and gives up with
//! [`Halt::OverBudget`] before it looks at more. How large the budgets are is decided by
//! [`super::Budget`].
//!
//! An [`Allowance`] is something else: how much work its caller wants done in this place. It
//! changes where events are matched, and never what comes of it: if it is used up, there is no
//! result at all ([`Stopped`]).

use std::sync::atomic::{AtomicBool, Ordering};

/// What it costs to look at a value or to test a condition, besides the bytes of its text.
pub const STEP_BYTES: usize = 8;

/// How many bytes could be looked at in the time that it takes to parse one.
const PARSE_FACTOR: u64 = 8;

/// The caller's allowance is used up, or the caller has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Why a filter has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// It would have to look at more than it may.
    OverBudget,
    /// Its caller wants no more work done here.
    Stopped,
}

impl From<Stopped> for Halt {
    fn from(_: Stopped) -> Self {
        Halt::Stopped
    }
}

/// How much work may be done in one place.
#[derive(Debug)]
pub struct Allowance<'a> {
    bytes: u64,
    used: u64,
    is_cancelled: Option<&'a AtomicBool>,
}

impl<'a> Allowance<'a> {
    /// Allows matching to look at so many bytes.
    pub fn of(bytes: u64) -> Self {
        Self { bytes, used: 0, is_cancelled: None }
    }

    /// Allows as much as the budgets of the filters do.
    pub fn unlimited() -> Self {
        Self::of(u64::MAX)
    }

    /// Returns the same, but used up as soon as the flag is set.
    #[must_use]
    pub fn until(self, is_cancelled: &'a AtomicBool) -> Self {
        Self { is_cancelled: Some(is_cancelled), ..self }
    }

    /// Returns how many bytes have been looked at.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Uses up some of it. Call this before the work is done.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Stopped> {
        self.used = self.used.saturating_add(bytes as u64);
        let is_cancelled = self.is_cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed));
        if self.used > self.bytes || is_cancelled { Err(Stopped) } else { Ok(()) }
    }

    /// Uses up what it takes to parse a payload.
    pub(super) fn parse(&mut self, bytes: usize) -> Result<(), Stopped> {
        self.spend((bytes as u64).saturating_mul(PARSE_FACTOR) as usize)
    }
}

/// The work of one filter on one event.
#[derive(Debug)]
pub struct Work<'w, 'a> {
    budget: u64,
    used: u64,
    allowance: &'w mut Allowance<'a>,
}

impl<'w, 'a> Work<'w, 'a> {
    /// Begins work that may look at `budget` bytes.
    pub fn within(budget: u64, allowance: &'w mut Allowance<'a>) -> Self {
        Self { budget, used: 0, allowance }
    }

    /// Counts bytes that are about to be looked at.
    pub fn look_at(&mut self, bytes: usize) -> Result<(), Halt> {
        let used = self.used.saturating_add(bytes as u64);
        if used > self.budget {
            return Err(Halt::OverBudget);
        }
        self.used = used;
        Ok(self.allowance.spend(bytes)?)
    }

    /// Returns how many bytes have been looked at.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns what the work as a whole may use. Parsing is paid from it, since it is done once
    /// for all filters.
    pub fn allowance(&mut self) -> &mut Allowance<'a> {
        self.allowance
    }
}
