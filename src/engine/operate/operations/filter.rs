//! The filters of operations: which rows an operation is about.

use serde::{Deserialize, Serialize};

use crate::domain::json::RawJson;
use crate::domain::operation::OperationKind;
use crate::domain::status::Status;
use crate::store::lists::dead_letters::DeadLetterFilter;
use crate::store::lists::events::EventFilter;
use crate::store::lists::pushes::PushFilter;
use crate::store::lists::targets::Target;

/// A filter for events that workers hold.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HeldFilter {
    #[serde(flatten)]
    pub events: EventFilter,
    /// Without it only events whose lease has expired are meant. With it also those whose worker has given no
    /// sign of life for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_for_seconds: Option<f64>,
}

/// The filter of an operation. Its kind decides which of these it is.
#[derive(Debug, Clone)]
pub enum OperationFilter {
    Events(EventFilter),
    Held(HeldFilter),
    Deliveries(PushFilter),
    DeadLetters(DeadLetterFilter),
}

impl OperationFilter {
    /// Reads the stored filter of an operation.
    pub(super) fn read(kind: OperationKind, json: &RawJson) -> Result<Self, serde_json::Error> {
        let text = json.as_str();
        Ok(match kind {
            OperationKind::RetryEvents | OperationKind::CancelEvents => Self::Events(serde_json::from_str(text)?),
            OperationKind::ResetEvents => Self::Held(serde_json::from_str(text)?),
            OperationKind::RetryDeliveries | OperationKind::CancelDeliveries => {
                Self::Deliveries(serde_json::from_str(text)?)
            }
            OperationKind::ReplayDeadLetters => Self::DeadLetters(serde_json::from_str(text)?),
        })
    }

    pub(super) fn to_json(&self) -> Result<RawJson, serde_json::Error> {
        match self {
            Self::Events(filter) => RawJson::of(filter),
            Self::Held(filter) => RawJson::of(filter),
            Self::Deliveries(filter) => RawJson::of(filter),
            Self::DeadLetters(filter) => RawJson::of(filter),
        }
    }

    /// Returns the states of the rows that an operation of `kind` is about.
    pub(super) fn statuses(&self, kind: OperationKind) -> Vec<Status> {
        let mut statuses = kind.statuses(match self {
            Self::Events(filter) => filter.status,
            Self::Held(filter) => filter.events.status,
            Self::Deliveries(filter) => filter.status,
            Self::DeadLetters(_) => None,
        });
        let excluded = self.events().and_then(|filter| filter.not.status);
        statuses.retain(|status| Some(*status) != excluded);
        statuses
    }

    /// Returns the rows to search for, in one of `statuses`.
    pub(super) fn target<'a>(&'a self, kind: OperationKind, statuses: &'a [Status]) -> Target<'a> {
        match self {
            Self::Events(filter) => Target::Events { filter, statuses },
            Self::Held(filter) => {
                Target::HeldEvents { filter: &filter.events, silent_seconds: filter.stale_for_seconds }
            }
            Self::Deliveries(filter) => {
                let failed_must_block = kind == OperationKind::CancelDeliveries;
                Target::Pushes { filter, statuses, failed_must_block }
            }
            Self::DeadLetters(filter) => Target::DeadLetters { filter },
        }
    }

    /// Returns the filter of events, if it is one.
    pub(crate) fn events(&self) -> Option<&EventFilter> {
        match self {
            Self::Events(filter) => Some(filter),
            Self::Held(filter) => Some(&filter.events),
            Self::Deliveries(_) | Self::DeadLetters(_) => None,
        }
    }

    /// Returns whether the filter admits an event that this worker was the last to claim.
    pub(super) fn admits_worker(&self, worker_id: Option<&str>) -> bool {
        self.events().is_none_or(|filter| {
            let wanted = filter.worker_id.as_deref().is_none_or(|wanted| worker_id == Some(wanted));
            wanted && filter.not.worker_id.as_deref().is_none_or(|excluded| worker_id != Some(excluded))
        })
    }
}
