//! The payload within what else is known of its event.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{JSON, Rendered, TransformInput};

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: Option<&'a str>,
    time: String,
    labels: &'a BTreeMap<String, String>,
    payload: &'a RawValue,
}

/// Renders the envelope around a payload, which keeps its bytes.
pub(super) fn render(parcel: &TransformInput<'_>, payload: &str) -> Result<Rendered, String> {
    let envelope = Envelope {
        id: parcel.webhook_id,
        event_type: parcel.event_type,
        time: written(parcel.time),
        labels: parcel.labels,
        payload: verbatim(payload)?,
    };
    Rendered::json(&envelope, JSON)
}

/// A payload, to be put into a larger document as it stands.
pub(super) fn verbatim(payload: &str) -> Result<&RawValue, String> {
    serde_json::from_str(payload).map_err(|error| format!("the payload cannot be read: {error}"))
}

/// A time as it is written everywhere.
pub(super) fn written(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}
