//! The cost of matching, counted in bytes read.
//!
//! Time would be the wrong measure: the same event and the same filter must give the same result on
//! a busy server. Each filter has a [`Work`] with a budget in bytes, and stops with
//! [`Halt::OverBudget`] before it reads more. [`super::Budget`] decides how large the budgets are.
//!
//! An [`Allowance`] is independent of the budgets: it limits the work of one call. It decides where an
//! event is matched, at once or on a blocking thread, and never what the result is. If it is used up,
//! there is no result at all ([`Stopped`]).

use std::sync::atomic::{AtomicBool, Ordering};

/// The fixed cost of reading a value or testing a condition, in addition to the bytes of its text.
pub(crate) const STEP_BYTES: usize = 8;

/// The cost of parsing one byte, in bytes read.
const PARSE_FACTOR: u64 = 8;

/// The error of an allowance that is used up or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// The reason why a filter has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// The filter would have to read more bytes than its budget allows.
    OverBudget,
    /// The caller's allowance is used up or cancelled.
    Stopped,
}

impl From<Stopped> for Halt {
    fn from(_: Stopped) -> Self {
        Halt::Stopped
    }
}

/// The amount of work that one caller may do.
#[derive(Debug)]
pub struct Allowance<'a> {
    bytes: u64,
    used: u64,
    is_cancelled: Option<&'a AtomicBool>,
}

impl<'a> Allowance<'a> {
    /// Allows matching to read `bytes` bytes.
    pub fn of(bytes: u64) -> Self {
        Self { bytes, used: 0, is_cancelled: None }
    }

    /// Sets no limit; the budgets of the filters still apply.
    pub fn unlimited() -> Self {
        Self::of(u64::MAX)
    }

    /// Returns the same allowance, which also ends as soon as the flag is set.
    #[must_use]
    pub fn until(self, is_cancelled: &'a AtomicBool) -> Self {
        Self { is_cancelled: Some(is_cancelled), ..self }
    }

    /// Returns the number of bytes read so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Spends `bytes` of the allowance. Call this before the work is done.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Stopped> {
        self.used = self.used.saturating_add(bytes as u64);
        let is_cancelled = self.is_cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed));
        if self.used > self.bytes || is_cancelled { Err(Stopped) } else { Ok(()) }
    }

    /// Spends the cost of parsing `bytes` bytes. Call this before parsing.
    pub(super) fn parse(&mut self, bytes: usize) -> Result<(), Stopped> {
        self.spend((bytes as u64).saturating_mul(PARSE_FACTOR) as usize)
    }
}

/// Counts the work of one filter on one event.
#[derive(Debug)]
pub struct Work<'w, 'a> {
    budget: u64,
    used: u64,
    allowance: &'w mut Allowance<'a>,
}

impl<'w, 'a> Work<'w, 'a> {
    /// Starts work that may read `budget` bytes.
    pub fn within(budget: u64, allowance: &'w mut Allowance<'a>) -> Self {
        Self { budget, used: 0, allowance }
    }

    /// Counts `bytes` bytes that are about to be read, or stops the filter.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Halt> {
        let used = self.used.saturating_add(bytes as u64);
        if used > self.budget {
            return Err(Halt::OverBudget);
        }
        self.used = used;
        Ok(self.allowance.spend(bytes)?)
    }

    /// Returns the number of bytes read so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the caller's allowance. Parsing is charged to it instead of to one filter, because
    /// the payload is parsed once for all filters.
    pub fn allowance(&mut self) -> &mut Allowance<'a> {
        self.allowance
    }
}
