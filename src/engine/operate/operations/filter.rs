//! The filters of operations: which rows an operation is about.

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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

/// The filter of an operation.
#[derive(Debug, Clone)]
pub struct OperationFilter {
    /// Only the rows with these ids, in ascending order. Empty if rows with any id are meant.
    pub ids: Vec<i64>,
    pub rows: RowFilter,
}

/// What rows must fulfil. The kind of the operation decides which of these it is.
#[derive(Debug, Clone)]
pub enum RowFilter {
    Events(EventFilter),
    Held(HeldFilter),
    Deliveries(PushFilter),
    DeadLetters(DeadLetterFilter),
}

/// The ids of a stored filter.
#[derive(Deserialize)]
struct Chosen {
    #[serde(default)]
    ids: Vec<i64>,
}

impl OperationFilter {
    /// Reads the stored filter of an operation. Fails if it has a field that this version does not know: a newer server
    /// may have stored it, and without one of its conditions an operation would change more than was asked.
    pub(super) fn read(kind: OperationKind, json: &RawJson) -> Result<Self, serde_json::Error> {
        let filter = Self::read_known(kind, json.as_str())?;
        let known: Value = serde_json::from_str(filter.to_json()?.as_str())?;
        match find_unknown_field(&serde_json::from_str(json.as_str())?, &known) {
            Some(name) => Err(serde_json::Error::custom(format!("the filter has an unknown field `{name}`"))),
            None => Ok(filter),
        }
    }

    fn read_known(kind: OperationKind, text: &str) -> Result<Self, serde_json::Error> {
        let Chosen { ids } = serde_json::from_str(text)?;
        let rows = match kind {
            OperationKind::RetryEvents | OperationKind::CancelEvents => RowFilter::Events(serde_json::from_str(text)?),
            OperationKind::ResetEvents => RowFilter::Held(serde_json::from_str(text)?),
            OperationKind::RetryDeliveries | OperationKind::CancelDeliveries => {
                RowFilter::Deliveries(serde_json::from_str(text)?)
            }
            OperationKind::ReplayDeadLetters => RowFilter::DeadLetters(serde_json::from_str(text)?),
        };
        Ok(OperationFilter { ids, rows })
    }

    pub(super) fn to_json(&self) -> Result<RawJson, serde_json::Error> {
        let rows = match &self.rows {
            RowFilter::Events(filter) => RawJson::of(filter),
            RowFilter::Held(filter) => RawJson::of(filter),
            RowFilter::Deliveries(filter) => RawJson::of(filter),
            RowFilter::DeadLetters(filter) => RawJson::of(filter),
        }?;
        if self.ids.is_empty() {
            return Ok(rows);
        }
        let mut fields: Map<String, Value> = serde_json::from_str(rows.as_str())?;
        fields.insert("ids".to_owned(), self.ids.clone().into());
        RawJson::of(&fields)
    }

    /// Returns the states of the rows that an operation of `kind` is about.
    pub(super) fn statuses(&self, kind: OperationKind) -> Vec<Status> {
        let mut statuses = kind.statuses(match &self.rows {
            RowFilter::Events(filter) => filter.status,
            RowFilter::Held(filter) => filter.events.status,
            RowFilter::Deliveries(filter) => filter.status,
            RowFilter::DeadLetters(_) => None,
        });
        let excluded = self.events().and_then(|filter| filter.not.status);
        statuses.retain(|status| Some(*status) != excluded);
        statuses
    }

    /// Returns the rows to search for, in one of `statuses`.
    pub(super) fn target<'a>(&'a self, kind: OperationKind, statuses: &'a [Status]) -> Target<'a> {
        match &self.rows {
            RowFilter::Events(filter) => Target::Events { filter, statuses },
            RowFilter::Held(filter) => {
                Target::HeldEvents { filter: &filter.events, silent_seconds: filter.stale_for_seconds }
            }
            RowFilter::Deliveries(filter) => {
                let failed_must_block = kind == OperationKind::CancelDeliveries;
                Target::Pushes { filter, statuses, failed_must_block }
            }
            RowFilter::DeadLetters(filter) => Target::DeadLetters { filter },
        }
    }

    /// Returns the filter of events, if it is one.
    pub(crate) fn events(&self) -> Option<&EventFilter> {
        match &self.rows {
            RowFilter::Events(filter) => Some(filter),
            RowFilter::Held(filter) => Some(&filter.events),
            RowFilter::Deliveries(_) | RowFilter::DeadLetters(_) => None,
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

/// Returns a field of a stored filter, or of what it excludes, that is not among the known ones.
fn find_unknown_field(stored: &Value, known: &Value) -> Option<String> {
    let unknown_in = |stored: &Value, known: &Value| {
        let names = stored.as_object().into_iter().flat_map(|fields| fields.keys());
        names.into_iter().find(|name| known.get(name.as_str()).is_none()).cloned()
    };
    unknown_in(stored, known).or_else(|| unknown_in(&stored["not"], &known["not"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: OperationKind, text: &str) -> Result<OperationFilter, String> {
        let json: RawJson = serde_json::from_str(text).unwrap();
        OperationFilter::read(kind, &json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_filter_is_read_as_it_was_stored() {
        let stored = r#"{"tags":["a"],"event_type":"order.paid","since":"2026-11-01T00:00:00Z","labels":{"x":"y"},"payload":{"order.id":"17"},"not":{"tags":["b"]}}"#;
        let filter = read(OperationKind::CancelEvents, stored).unwrap();
        assert_eq!(filter.to_json().unwrap().as_str(), stored);
        let held = read(OperationKind::ResetEvents, r#"{"event_type":"a","stale_for_seconds":60.0}"#).unwrap();
        assert!(matches!(held.rows, RowFilter::Held(held) if held.stale_for_seconds == Some(60.0)));
        for kind in OperationKind::ALL {
            assert!(read(kind, "{}").unwrap().ids.is_empty());
            let chosen = read(kind, r#"{"ids":[3,17]}"#).unwrap();
            assert_eq!(chosen.to_json().unwrap().as_str(), r#"{"ids":[3,17]}"#);
        }
    }

    #[test]
    fn a_filter_with_a_condition_of_a_newer_version_is_refused() {
        for kind in [
            OperationKind::RetryEvents,
            OperationKind::CancelEvents,
            OperationKind::ResetEvents,
            OperationKind::RetryDeliveries,
            OperationKind::CancelDeliveries,
            OperationKind::ReplayDeadLetters,
        ] {
            let error = read(kind, r#"{"colour":"red"}"#).unwrap_err();
            assert!(error.contains("`colour`"), "{error}");
        }
        let error = read(OperationKind::CancelEvents, r#"{"tags":["a"],"not":{"colour":"red"}}"#).unwrap_err();
        assert!(error.contains("`not`"), "{error}");
        let error = read(OperationKind::CancelEvents, r#"{"not":{"tags":["b"],"colour":"red"}}"#).unwrap_err();
        assert!(error.contains("`colour`"), "{error}");
    }
}
