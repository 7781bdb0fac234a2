//! The clock. In production it is always the database's. Tests pass their own time to every statement,
//! and therefore never sleep.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

/// The clock that statements use.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The clock of the database.
    #[default]
    Database,
    /// A clock that stands still until it is advanced.
    Fixed(Arc<Mutex<DateTime<Utc>>>),
}

impl Clock {
    /// Returns a clock that stands at `time`.
    pub fn fixed(time: DateTime<Utc>) -> Self {
        Clock::Fixed(Arc::new(Mutex::new(time)))
    }

    /// Returns the time to pass to statements as `now`, or `None` for the database's own time.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        match self {
            Clock::Database => None,
            Clock::Fixed(time) => Some(*time.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Advances a fixed clock. Does nothing for the clock of the database.
    pub fn advance(&self, by: TimeDelta) {
        if let Clock::Fixed(time) = self {
            *time.lock().unwrap_or_else(PoisonError::into_inner) += by;
        }
    }
}
