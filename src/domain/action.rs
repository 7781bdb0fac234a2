//! The words of the audit trail: a closed list.

use serde::Serialize;

/// What was done to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Action {
    /// Handed out under a new lease.
    Picked,
    /// The worker said that it began.
    Started,
    /// The worker said that it is done.
    Completed,
    /// The worker said that it failed, or the server gave up on a poison event.
    Failed,
    /// Given back without spending an attempt.
    Released,
    /// Taken back, by an operator or because the lease ran out.
    Reset,
    /// Revived by an operator.
    Retried,
    /// Called off by an operator.
    Cancelled,
    /// Not claimed before it became worthless.
    Expired,
    /// Of a push: given up, and put with the dead letters.
    #[serde(rename = "DEAD_LETTERED")]
    DeadLettered,
    /// Of a push: sent again from the dead letters.
    Replayed,
}

impl Action {
    /// All of them, as the contract lists them.
    pub const ALL: [Action; 11] = [
        Action::Picked,
        Action::Started,
        Action::Completed,
        Action::Failed,
        Action::Released,
        Action::Reset,
        Action::Retried,
        Action::Cancelled,
        Action::Expired,
        Action::DeadLettered,
        Action::Replayed,
    ];

    /// The word used in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Picked => "PICKED",
            Action::Started => "STARTED",
            Action::Completed => "COMPLETED",
            Action::Failed => "FAILED",
            Action::Released => "RELEASED",
            Action::Reset => "RESET",
            Action::Retried => "RETRIED",
            Action::Cancelled => "CANCELLED",
            Action::Expired => "EXPIRED",
            Action::DeadLettered => "DEAD_LETTERED",
            Action::Replayed => "REPLAYED",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }
}
