//! Events and log entries as JSON.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::deliveries::DeliveryView;
use super::refused_settlements::RefusedSettlementView;
use crate::domain::api_key::{KeyScope, Principal};
use crate::domain::event::NewEvent;
use crate::domain::ids::{DeliveryId, EventId, LeaseId};
use crate::domain::json::RawJson;
use crate::domain::redaction::Redaction;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::event_columns::{ColumnValue, EventColumns, EventRow, WorkColumns};
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::events::{EventDetails, EventOrigin, StoredEvent};

/// A timestamp in RFC 3339 format, in UTC, ending in `Z`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timestamp(pub DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

pub(crate) fn timestamp(time: Option<DateTime<Utc>>) -> Option<Timestamp> {
    time.map(Timestamp)
}

/// An event and its state.
#[derive(Serialize)]
pub(crate) struct EventView<'a> {
    #[serde(flatten)]
    event: EventFields<'a>,
    status: &'static str,
    retry_count: i32,
    next_retry_at: Option<Timestamp>,
    worker_id: Option<&'a str>,
    cancel_requested: bool,
    /// Only of a single event that a reader or an operator asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    cancellation: Option<Cancellation<'a>>,
    /// Only of a single event, for operators.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    origin: Option<OriginView<'a>>,
    /// Omitted in lists.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    reports: Option<Reports<'a>>,
    last_error: Option<&'a str>,
    /// The fields that the caller may not see. Omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<&'static [&'static str]>,
    updated_at: Timestamp,
    /// Only in the response to a claim.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseView>,
    /// Only in the response to the publisher.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    receipt: Option<PublishedView>,
    /// Only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Vec<LogView<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_settlements: Option<Vec<RefusedSettlementView<'a>>>,
    /// Only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<Vec<DeliveryView<'a>>>,
}

/// The columns of an event as fields of its JSON.
struct EventFields<'a> {
    event: &'a EventColumns,
    payload: PayloadField,
}

/// How the payload of an event appears.
#[derive(PartialEq, Eq)]
enum PayloadField {
    Shown,
    /// Without what nobody is shown.
    Redacted(RawJson),
    /// As `null`, because the caller may not see it.
    Hidden,
    Omitted,
}

impl Serialize for EventFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        for (name, value) in self.event.values() {
            match value {
                ColumnValue::Json(json) if name == "payload" => match &self.payload {
                    PayloadField::Shown => fields.serialize_entry(name, &json)?,
                    PayloadField::Redacted(json) => fields.serialize_entry(name, json)?,
                    PayloadField::Hidden => fields.serialize_entry(name, &())?,
                    PayloadField::Omitted => {}
                },
                ColumnValue::Json(None) if name == "labels" => fields.serialize_entry(name, &serde_json::Map::new())?,
                ColumnValue::Json(json) => fields.serialize_entry(name, &json)?,
                ColumnValue::Id(id) => fields.serialize_entry(name, &id)?,
                ColumnValue::Integer(number) => fields.serialize_entry(name, &number)?,
                ColumnValue::Text(text) => fields.serialize_entry(name, &text)?,
                ColumnValue::Texts(texts) => fields.serialize_entry(name, &texts.join(","))?,
                ColumnValue::Time(time) => fields.serialize_entry(name, &timestamp(time))?,
            }
        }
        fields.end()
    }
}

/// Why an event was cancelled or is being cancelled, if a reason was given.
#[derive(Serialize)]
struct Cancellation<'a> {
    cancel_reason: Option<&'a str>,
}

/// Where an event came from.
#[derive(Serialize)]
struct OriginView<'a> {
    idempotency_key: Option<&'a str>,
    published_by: Option<&'a str>,
    client_address: Option<&'a str>,
}

/// What a publish adds to an event.
#[derive(Serialize)]
struct PublishedView {
    enqueued: i32,
    repeated: bool,
}

/// What workers reported about an event.
#[derive(Serialize)]
struct Reports<'a> {
    progress: Option<Cow<'a, RawJson>>,
    result: Option<Cow<'a, RawJson>>,
}

/// What a claim adds to an event.
#[derive(Serialize)]
struct LeaseView {
    lease_id: LeaseId,
    lease_expires_at: Option<Timestamp>,
    attempt: i32,
}

impl<'a> EventView<'a> {
    /// Returns the event with payload, progress and result.
    pub(crate) fn whole(row: &'a EventRow) -> Self {
        let mut view = Self::listed(row);
        view.event.payload = PayloadField::Shown;
        view.reports = Some(Reports {
            progress: row.work.progress.as_ref().map(|json| Cow::Borrowed(&json.0)),
            result: row.work.result.as_ref().map(|json| Cow::Borrowed(&json.0)),
        });
        view
    }

    /// Returns the event with payload, progress and result, without what is redacted in them.
    fn redacted(row: &'a EventRow, redaction: &Redaction) -> Self {
        let mut view = Self::whole(row);
        if let Some(payload) = row.event.payload.as_ref().and_then(|json| redaction.redact("payload", &json.0)) {
            view.event.payload = PayloadField::Redacted(payload);
        }
        let report = |field: &str, json: &'a JsonColumn| {
            redaction.redact(field, &json.0).map_or(Cow::Borrowed(&json.0), Cow::Owned)
        };
        view.reports = Some(Reports {
            progress: row.work.progress.as_ref().map(|json| report("progress", json)),
            result: row.work.result.as_ref().map(|json| report("result", json)),
        });
        view
    }

    /// Returns the event for those who read it, with the reason for which it was cancelled.
    pub(crate) fn detailed(details: &'a EventDetails, redaction: &Redaction) -> Self {
        let mut view = Self::redacted(&details.row, redaction);
        view.cancellation = Some(Cancellation { cancel_reason: details.cancel_reason.as_deref() });
        let EventOrigin { idempotency_key, published_by, client_address } = &details.origin;
        view.origin = Some(OriginView {
            idempotency_key: idempotency_key.as_deref(),
            published_by: published_by.as_deref(),
            client_address: client_address.as_deref(),
        });
        view
    }

    /// Returns the event as an element of a list, without payload, progress and result.
    pub(crate) fn listed(row: &'a EventRow) -> Self {
        let EventRow { event, work } = row;
        EventView {
            event: EventFields { event, payload: PayloadField::Omitted },
            status: work.status.0.as_str(),
            retry_count: work.retry_count,
            next_retry_at: next_retry_at(work),
            worker_id: work.worker_id.as_deref(),
            cancel_requested: work.cancel_requested,
            cancellation: None,
            origin: None,
            reports: None,
            last_error: work.last_error.as_deref(),
            hidden: None,
            updated_at: Timestamp(work.updated_at),
            lease: None,
            receipt: None,
            logs: None,
            refused_settlements: None,
            deliveries: None,
        }
    }

    /// Hides what only callers with the scope `reveal` or `operate` may see, unless this one has it.
    pub(crate) fn for_reader(mut self, reader: &Principal) -> Self {
        if !reader.scopes.allow(KeyScope::Operate) {
            self.origin = None;
        }
        if reader.may_reveal() {
            return self;
        }
        self.last_error = None;
        self.hidden = Some(&["last_error"]);
        if self.event.payload != PayloadField::Omitted {
            self.event.payload = PayloadField::Hidden;
            self.reports = Some(Reports { progress: None, result: None });
            self.hidden = Some(&["payload", "progress", "result", "last_error"]);
        }
        self
    }

    /// Returns the event for its publisher, with the number of subscriptions that it is pushed to.
    pub(crate) fn published(row: &'a EventRow, enqueued: i32) -> Self {
        let mut view = Self::whole(row);
        view.receipt = Some(PublishedView { enqueued, repeated: false });
        view
    }

    /// Returns an event that was published before, for a publisher that publishes it again.
    pub(crate) fn repeated(details: &'a EventDetails, redaction: &Redaction) -> Self {
        let mut view = Self::detailed(details, redaction);
        view.receipt = Some(PublishedView { enqueued: 0, repeated: true });
        view
    }

    /// Returns the event for the worker that claimed it.
    pub(crate) fn claimed(row: &'a EventRow) -> Self {
        let mut view = Self::whole(row);
        view.lease = Some(LeaseView {
            lease_id: row.work.lease_id,
            lease_expires_at: timestamp(row.work.lease_expires_at),
            attempt: row.work.retry_count + 1,
        });
        view
    }
}

/// Returns about how many bytes events take in a response.
pub(crate) fn size_of<'a>(rows: impl IntoIterator<Item = &'a EventRow>) -> usize {
    const ALL_BUT_JSON: usize = 1024;
    let json = |json: &Option<JsonColumn>| json.as_ref().map_or(0, |json| json.0.as_str().len());
    let bytes =
        |row: &EventRow| ALL_BUT_JSON + json(&row.event.payload) + json(&row.work.progress) + json(&row.work.result);
    rows.into_iter().map(bytes).sum()
}

/// Returns the time of the next attempt. The first attempt is not a retry: its time is `run_at`.
fn next_retry_at(work: &WorkColumns) -> Option<Timestamp> {
    timestamp(work.due_at.filter(|_| work.lease_id > LeaseId::NONE))
}

/// An entry of the event log.
#[derive(Serialize)]
pub(crate) struct LogView<'a> {
    pub id: i64,
    pub event_id: EventId,
    /// Only of pushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<DeliveryId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<&'a str>,
    pub action: &'static str,
    /// Omitted if there was no claim yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    pub attempt: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_time_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<&'a str>,
    /// The fields that the caller may not see. Omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<&'static [&'static str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// Only of changes that the lease holder did not cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<&'a str>,
    /// Only of claims. Omitted for the default length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

impl<'a> LogView<'a> {
    pub(crate) fn of(entry: &'a LogEntry) -> Self {
        LogView {
            id: entry.id,
            event_id: entry.event_id,
            delivery_id: entry.delivery_id,
            worker_id: entry.worker_id.as_deref(),
            action: entry.action.0.as_str(),
            lease_id: Some(entry.lease_id).filter(|id| *id > LeaseId::NONE),
            attempt: entry.attempt,
            status_code: entry.status_code,
            execution_time_ms: entry.execution_time_ms,
            error_kind: entry.error_kind.as_deref(),
            error_message: entry.error_message.as_deref(),
            hidden: None,
            reason: entry.reason.as_deref(),
            actor: entry.actor.as_deref(),
            lease_seconds: entry.lease_seconds,
            next_retry_at: timestamp(entry.next_retry_at),
            created_at: Timestamp(entry.created_at),
        }
    }
}

impl LogView<'_> {
    /// Hides what only callers with the scope `reveal` may see, unless this one has it.
    pub(crate) fn for_reader(self, reader: &Principal) -> Self {
        match reader.may_reveal() {
            true => self,
            false => LogView { error_message: None, hidden: Some(&["error_message"]), ..self },
        }
    }
}

/// The response about one event of a batch to its publisher, who has the event itself.
#[derive(Serialize)]
pub(crate) struct Receipt {
    id: EventId,
    status: &'static str,
    created_at: Timestamp,
    enqueued: i32,
    repeated: bool,
}

impl Receipt {
    pub(crate) fn of(new: &NewEvent, stored: &StoredEvent) -> Self {
        Receipt {
            id: stored.id,
            status: stored.status(new).as_str(),
            created_at: Timestamp(stored.created_at),
            enqueued: stored.enqueued,
            repeated: false,
        }
    }

    /// Returns the receipt of an event that was published before.
    pub(crate) fn repeated(stored: &StoredEvent, status: &'static str) -> Self {
        Receipt { id: stored.id, status, created_at: Timestamp(stored.created_at), enqueued: 0, repeated: true }
    }
}
