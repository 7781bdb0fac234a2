//! The states of a delivery.

use serde::{Deserialize, Serialize};

/// The state of a delivery. The transitions are in `docs/state-machine.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// The delivery waits for a worker, for its due time, or behind an earlier event of its key.
    Pending,
    /// A worker or the dispatcher holds a lease on it.
    Processing,
    Completed,
    /// The delivery was abandoned: its attempts are exhausted, a failure was not retryable, it is
    /// poison, or it expired.
    Failed,
    Cancelled,
}

impl Status {
    /// All states, in the order of the API documentation.
    pub const ALL: [Status; 5] =
        [Status::Pending, Status::Processing, Status::Completed, Status::Failed, Status::Cancelled];

    /// Returns the name used in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Processing => "PROCESSING",
            Status::Completed => "COMPLETED",
            Status::Failed => "FAILED",
            Status::Cancelled => "CANCELLED",
        }
    }

    /// Parses a name, or returns `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Returns whether the state is final unless an operator intervenes.
    pub fn is_finished(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }
}
