//! Rendering of the envelope: an object with the payload, the ids, and the event's type, creation time and labels.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{JSON, Rendered, TransformInput};
use crate::domain::ids::EventId;

#[derive(Serialize)]
struct Envelope<'a> {
    webhook_id: &'a str,
    event_id: Option<EventId>,
    event_type: Option<&'a str>,
    created_at: String,
    labels: &'a BTreeMap<String, String>,
    payload: &'a RawValue,
}

/// Renders the envelope around a payload, which keeps its bytes.
pub(super) fn render(input: &TransformInput<'_>, payload: &str) -> Result<Rendered, String> {
    let envelope = Envelope {
        webhook_id: input.webhook_id,
        event_id: input.event_id,
        event_type: input.event_type,
        created_at: format_time(input.created_at),
        labels: input.labels,
        payload: verbatim(payload)?,
    };
    Rendered::json(&envelope, JSON)
}

/// Returns the payload as raw JSON, to be embedded in a larger document verbatim.
pub(super) fn verbatim(payload: &str) -> Result<&RawValue, String> {
    serde_json::from_str(payload).map_err(|error| format!("the payload cannot be read: {error}"))
}

/// Formats a time as RFC 3339 in UTC with microseconds.
pub(super) fn format_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}
