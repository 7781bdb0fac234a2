//! The result of a settlement.

use chrono::{DateTime, Utc};

use crate::domain::action::Action;
use crate::domain::ids::{EventId, LeaseId};
use crate::domain::status::Status;
use crate::store::tables::event_log::LogEntry;

/// The result of a call that was accepted.
#[derive(Debug, Clone)]
pub enum SettleOutcome {
    Recorded(Box<RecordedSettlement>),
    /// The lease was extended by a heartbeat.
    Extended {
        lease_expires_at: DateTime<Utc>,
        /// Whether the worker should stop.
        cancel_requested: bool,
        cancel_reason: Option<String>,
    },
}

/// A settlement that is recorded, by this call or by an earlier one.
#[derive(Debug, Clone)]
pub struct RecordedSettlement {
    pub entry: SettlementEntry,
    /// Whether an earlier call recorded it.
    pub is_repeat: bool,
    /// The status of the delivery after it.
    pub status: Status,
    /// The number of failures so far.
    pub retry_count: i32,
    /// The maximum number of attempts.
    pub max_retries: i32,
}

/// The log entry of a settlement, or what is left of it once it has been pruned.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are the large one, and a box would be an allocation for each"
)]
pub enum SettlementEntry {
    Logged(LogEntry),
    /// Only repeated settlements come to this.
    Pruned(PrunedEntry),
}

/// What the delivery's row still knows of a settlement.
#[derive(Debug, Clone)]
pub struct PrunedEntry {
    pub event_id: EventId,
    pub worker_id: String,
    pub action: Action,
    pub lease_id: LeaseId,
}

impl SettlementEntry {
    pub fn action(&self) -> Action {
        match self {
            SettlementEntry::Logged(entry) => entry.action.0,
            SettlementEntry::Pruned(entry) => entry.action,
        }
    }

    /// Returns the time of the next attempt, if one is known.
    pub fn next_retry_at(&self) -> Option<DateTime<Utc>> {
        match self {
            SettlementEntry::Logged(entry) => entry.next_retry_at,
            SettlementEntry::Pruned(_) => None,
        }
    }
}
