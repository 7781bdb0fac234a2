//! Operations: an operator's work on many rows, done in the background.

use serde::Serialize;

use crate::domain::status::Status;

/// What an operation does, and with which rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum OperationKind {
    RetryEvents,
    CancelEvents,
    ResetEvents,
    RetryDeliveries,
    CancelDeliveries,
    ReplayDeadLetters,
}

impl OperationKind {
    /// All kinds, in the order of the API documentation.
    pub const ALL: [OperationKind; 6] = [
        OperationKind::RetryEvents,
        OperationKind::CancelEvents,
        OperationKind::ResetEvents,
        OperationKind::RetryDeliveries,
        OperationKind::CancelDeliveries,
        OperationKind::ReplayDeadLetters,
    ];

    /// Returns the name used in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationKind::RetryEvents => "retry_events",
            OperationKind::CancelEvents => "cancel_events",
            OperationKind::ResetEvents => "reset_events",
            OperationKind::RetryDeliveries => "retry_deliveries",
            OperationKind::CancelDeliveries => "cancel_deliveries",
            OperationKind::ReplayDeadLetters => "replay_dead_letters",
        }
    }

    /// Parses a name, or returns `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Returns the states that a filter may ask for.
    pub fn allowed_statuses(self) -> &'static [Status] {
        match self {
            // A failed push that blocks its ordering key is cancelled only if failed ones are asked for.
            OperationKind::CancelDeliveries => &[Status::Pending, Status::Processing, Status::Failed],
            other => other.default_statuses(),
        }
    }

    /// Returns the states of the rows that are meant if the filter asks for none. Dead letters have no state.
    pub fn default_statuses(self) -> &'static [Status] {
        match self {
            OperationKind::RetryEvents | OperationKind::RetryDeliveries => &[Status::Failed, Status::Cancelled],
            OperationKind::CancelEvents | OperationKind::CancelDeliveries => &[Status::Pending, Status::Processing],
            OperationKind::ResetEvents => &[Status::Processing],
            OperationKind::ReplayDeadLetters => &[],
        }
    }

    /// Returns the states of the rows that are meant if the filter asks for `status`.
    pub fn statuses(self, status: Option<Status>) -> Vec<Status> {
        status.map_or_else(|| self.default_statuses().to_vec(), |status| vec![status])
    }
}

/// The state of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum OperationStatus {
    Running,
    Completed,
    Cancelled,
    /// The server gave it up, because it could not continue.
    Failed,
}

impl OperationStatus {
    /// All states, in the order of the API documentation.
    pub const ALL: [OperationStatus; 4] =
        [OperationStatus::Running, OperationStatus::Completed, OperationStatus::Cancelled, OperationStatus::Failed];

    /// Returns the name used in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationStatus::Running => "RUNNING",
            OperationStatus::Completed => "COMPLETED",
            OperationStatus::Cancelled => "CANCELLED",
            OperationStatus::Failed => "FAILED",
        }
    }

    /// Parses a name, or returns `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}
