//! Whose time it is. In production always the database's; tests pass their own along with
//! every statement, and so never sleep.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

/// The clock that statements go by.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The database's own.
    #[default]
    Database,
    /// One that stands still until it is moved.
    Fixed(Arc<Mutex<DateTime<Utc>>>),
}

impl Clock {
    /// A clock that stands at `time`.
    pub fn fixed(time: DateTime<Utc>) -> Self {
        Clock::Fixed(Arc::new(Mutex::new(time)))
    }

    /// What to pass to statements as their `now`: nothing for the database's own.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        match self {
            Clock::Database => None,
            Clock::Fixed(time) => Some(*time.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Moves a fixed clock forward; the database's cannot be moved.
    pub fn advance(&self, by: TimeDelta) {
        if let Clock::Fixed(time) = self {
            *time.lock().unwrap_or_else(PoisonError::into_inner) += by;
        }
    }
}
