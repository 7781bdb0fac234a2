//! What events and log entries look like on the wire.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};

use super::deliveries::DeliveryView;
use crate::domain::event::NewEvent;
use crate::domain::ids::{DeliveryId, EventId, LeaseId};
use crate::domain::json::RawJson;
use crate::domain::status::Status;
use crate::store::tables::columns::{JsonColumn, StatusColumn};
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::events::{EventColumns, EventRow, StoredEvent, WorkColumns};

/// A timestamp as the contract wants it: RFC 3339, UTC, ending in `Z`.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp(pub DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

/// An optional one.
pub fn timestamp(time: Option<DateTime<Utc>>) -> Option<Timestamp> {
    time.map(Timestamp)
}

/// An event.
#[derive(Serialize)]
#[expect(missing_docs, reason = "named as in the contract")]
pub struct EventView<'a> {
    pub id: EventId,
    pub title: &'a str,
    pub description: Option<&'a str>,
    pub tags: String,
    pub event_type: Option<&'a str>,
    pub labels: Labels<'a>,
    /// Left out of lists; `null` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Option<&'a RawJson>>,
    pub priority: i16,
    pub status: &'static str,
    pub retry_count: i32,
    pub max_retries: i32,
    pub next_retry_at: Option<Timestamp>,
    pub run_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub ordering_key: Option<&'a str>,
    pub correlation_id: Option<&'a str>,
    pub traceparent: Option<&'a str>,
    pub worker_id: Option<&'a str>,
    pub cancel_requested: bool,
    /// Only of one event, where a reason was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<&'a str>,
    pub progress: Option<&'a RawJson>,
    pub result: Option<&'a RawJson>,
    pub last_error: Option<&'a str>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Only in what was just claimed.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// Only in the answer to its publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueued: Option<i32>,
    /// Only where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Vec<LogView<'a>>>,
    /// Only where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<Vec<DeliveryView<'a>>>,
}

/// What a claim adds to an event.
#[derive(Serialize)]
#[expect(missing_docs, reason = "named as in the contract")]
pub struct LeaseView {
    pub lease_id: LeaseId,
    pub lease_expires_at: Option<Timestamp>,
    pub attempt: i32,
}

/// Labels: an object, empty where there are none.
pub enum Labels<'a> {
    /// As stored.
    Some(&'a RawJson),
    /// None.
    Empty,
}

impl Serialize for Labels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Labels::Some(json) => json.serialize(serializer),
            Labels::Empty => serde_json::Map::new().serialize(serializer),
        }
    }
}

impl<'a> EventView<'a> {
    /// The whole event.
    pub fn whole(row: &'a EventRow) -> Self {
        let mut view = Self::without_payload(row);
        view.payload = Some(row.event.payload.as_ref().map(|json| &json.0));
        view
    }

    /// For lists.
    pub fn without_payload(row: &'a EventRow) -> Self {
        let EventRow { event, work } = row;
        EventView {
            id: event.id,
            title: &event.title,
            description: event.description.as_deref(),
            tags: event.tags.join(","),
            event_type: event.event_type.as_deref(),
            labels: event.labels.as_ref().map_or(Labels::Empty, |json| Labels::Some(&json.0)),
            payload: None,
            priority: event.priority,
            status: work.status.0.as_str(),
            retry_count: work.retry_count,
            max_retries: event.max_retries,
            next_retry_at: next_retry_at(work),
            run_at: timestamp(event.run_at),
            expires_at: timestamp(event.expires_at),
            ordering_key: event.ordering_key.as_deref(),
            correlation_id: event.correlation_id.as_deref(),
            traceparent: event.traceparent.as_deref(),
            worker_id: work.worker_id.as_deref(),
            cancel_requested: work.cancel_requested,
            cancel_reason: None,
            progress: work.progress.as_ref().map(|json| &json.0),
            result: work.result.as_ref().map(|json| &json.0),
            last_error: work.last_error.as_deref(),
            created_at: Timestamp(event.created_at),
            updated_at: Timestamp(work.updated_at),
            lease: None,
            enqueued: None,
            logs: None,
            deliveries: None,
        }
    }

    /// As its publisher sees it: of an event that is pushed, with how many get it.
    pub fn published((row, enqueued): &'a (EventRow, i32)) -> Self {
        let mut view = Self::whole(row);
        view.enqueued = Some(*enqueued).filter(|enqueued| *enqueued > 0 || row.event.tags.is_empty());
        view
    }

    /// As handed to a worker.
    pub fn claimed(row: &'a EventRow) -> Self {
        let mut view = Self::whole(row);
        view.lease = Some(LeaseView {
            lease_id: row.work.lease_id,
            lease_expires_at: timestamp(row.work.lease_expires_at),
            attempt: row.work.retry_count + 1,
        });
        view
    }
}

/// A first run that is still to come is `run_at`'s business, not a retry.
/// Returns about how many bytes events take in a response.
pub fn size_of<'a>(rows: impl IntoIterator<Item = &'a EventRow>) -> usize {
    const ALL_BUT_JSON: usize = 1024;
    let json = |json: &Option<JsonColumn>| json.as_ref().map_or(0, |json| json.0.as_str().len());
    let bytes =
        |row: &EventRow| ALL_BUT_JSON + json(&row.event.payload) + json(&row.work.progress) + json(&row.work.result);
    rows.into_iter().map(bytes).sum()
}

fn next_retry_at(work: &WorkColumns) -> Option<Timestamp> {
    timestamp(work.due_at.filter(|_| work.lease_id > LeaseId::NONE))
}

/// A line of the audit trail.
#[derive(Serialize)]
#[expect(missing_docs, reason = "named as in the contract")]
pub struct LogView<'a> {
    pub id: i64,
    pub event_id: EventId,
    /// Of pushes alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<DeliveryId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<&'a str>,
    pub action: &'static str,
    pub lease_id: LeaseId,
    pub attempt: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_time_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

impl<'a> LogView<'a> {
    /// The line.
    pub fn of(entry: &'a LogEntry) -> Self {
        LogView {
            id: entry.id,
            event_id: entry.event_id,
            delivery_id: Some(entry.delivery_id).filter(|id| *id != entry.event_id.own_delivery()),
            worker_id: entry.worker_id.as_deref(),
            action: entry.action.0.as_str(),
            lease_id: entry.lease_id,
            attempt: entry.attempt,
            status_code: entry.status_code,
            execution_time_ms: entry.execution_time_ms,
            error_kind: entry.error_kind.as_deref(),
            error_message: entry.error_message.as_deref(),
            reason: entry.reason.as_deref(),
            next_retry_at: timestamp(entry.next_retry_at),
            created_at: Timestamp(entry.created_at),
        }
    }
}

/// Events that have just been published, from what was sent and what the database added; and to
/// how many subscribers each goes.
pub fn published(events: Arc<Vec<NewEvent>>, stored: Vec<StoredEvent>) -> Vec<(EventRow, i32)> {
    // The engine lets go of its share with the answer; only a straggler makes this a copy.
    let events = Arc::try_unwrap(events).unwrap_or_else(|shared| shared.as_ref().clone());
    events.into_iter().zip(stored).map(|(new, stored)| published_one(new, stored)).collect()
}

fn published_one(new: NewEvent, stored: StoredEvent) -> (EventRow, i32) {
    let is_done = new.tags.is_empty() && stored.enqueued == 0;
    let enqueued = stored.enqueued;
    let labels = (!new.labels.is_empty()).then(|| RawJson::of(&new.labels).ok()).flatten();
    let row = EventRow {
        event: EventColumns {
            id: stored.id,
            title: new.title,
            description: new.description,
            event_type: new.event_type,
            tags: new.tags.as_slice().to_vec(),
            labels: labels.map(JsonColumn),
            payload: new.payload.map(JsonColumn),
            priority: new.priority,
            max_retries: new.max_retries,
            ordering_key: new.ordering_key,
            correlation_id: new.correlation_id,
            traceparent: new.traceparent,
            run_at: stored.run_at,
            expires_at: new.expires_at,
            created_at: stored.created_at,
        },
        work: WorkColumns {
            // An event that is only pushed, and to nobody, is done.
            status: StatusColumn(if is_done { Status::Completed } else { Status::Pending }),
            retry_count: 0,
            lease_id: LeaseId::NONE,
            due_at: stored.due_at,
            worker_id: None,
            lease_expires_at: None,
            cancel_requested: false,
            progress: None,
            result: None,
            last_error: None,
            updated_at: stored.created_at,
        },
    };
    (row, enqueued)
}
