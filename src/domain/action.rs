//! The actions of the event log.

use serde::Serialize;

/// An action on a delivery. The names are part of the API, so the set is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Action {
    /// The delivery was claimed under a new lease.
    Picked,
    /// The worker reported that it started.
    Started,
    /// The worker reported success.
    Completed,
    /// The worker reported a failure, or the server abandoned a poison event.
    Failed,
    /// The worker returned the delivery without spending an attempt.
    Released,
    /// An operator took the delivery back, or its lease expired.
    Reset,
    /// An operator made a finished delivery pending again.
    Retried,
    /// An operator cancelled the delivery.
    Cancelled,
    /// The delivery was not claimed before its `expires_at`.
    Expired,
    /// A push was abandoned and became a dead letter.
    #[serde(rename = "DEAD_LETTERED")]
    DeadLettered,
    /// A dead letter was replayed.
    Replayed,
}

impl Action {
    /// All actions, in the order of the API documentation.
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

    /// Returns the name used in the database and in the API.
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

    /// Parses a name, or returns `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}
