//! The states of work.

use serde::Serialize;

/// Where a delivery stands. The arrows are in `docs/state-machine.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Waits: for a worker, for its time, or for its turn.
    Pending,
    /// Held under a lease.
    Processing,
    /// Done.
    Completed,
    /// Given up: retries spent, a failure that said so, poison, or expired.
    Failed,
    /// Called off.
    Cancelled,
}

impl Status {
    /// All of them, as the contract lists them.
    pub const ALL: [Status; 5] =
        [Status::Pending, Status::Processing, Status::Completed, Status::Failed, Status::Cancelled];

    /// The word used in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Processing => "PROCESSING",
            Status::Completed => "COMPLETED",
            Status::Failed => "FAILED",
            Status::Cancelled => "CANCELLED",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing more will happen unless an operator says so.
    pub fn is_finished(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }
}
