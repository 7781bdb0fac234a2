//! Events as clients see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::ClientError;

/// An event to publish. Fields that are `None` have the server's defaults.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewEvent {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The payload, which is stored and handed out byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// The time before which it cannot be claimed, such as `2026-03-09T08:15:00Z`. Not together with `delay_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<String>,
    /// The time at which it expires if no worker has claimed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The event is stored once under this key, however often it is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

impl NewEvent {
    /// Returns an event with a title and tags.
    pub fn new<T: Into<String>>(title: impl Into<String>, tags: impl IntoIterator<Item = T>) -> Self {
        NewEvent { title: title.into(), tags: tags.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Returns the event with this payload.
    pub fn payload(self, payload: &impl Serialize) -> Result<Self, ClientError> {
        let payload = to_raw_value(payload).map_err(|error| ClientError::Settings(error.to_string()))?;
        Ok(NewEvent { payload: Some(payload), ..self })
    }

    /// Returns the event with this JSON text as its payload, byte for byte but for space around it.
    pub fn payload_text(self, payload: String) -> Result<Self, ClientError> {
        let not_json = |error: serde_json::Error| ClientError::Settings(format!("the payload is not JSON: {error}"));
        Ok(NewEvent { payload: Some(RawValue::from_string(payload).map_err(not_json)?), ..self })
    }

    /// Returns the event with a label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }
}

/// An event that the server has stored.
#[derive(Debug, Clone, Deserialize)]
pub struct PublishedEvent {
    pub id: i64,
    pub status: String,
    /// Whether the idempotency key had been used before, and nothing was stored.
    #[serde(default)]
    pub repeated: bool,
}

/// An event that a worker holds under a lease.
#[derive(Debug, Deserialize)]
pub struct ClaimedEvent {
    pub id: i64,
    pub title: String,
    /// The tags, separated by commas.
    #[serde(default)]
    pub tags: String,
    pub event_type: Option<String>,
    pub labels: Option<Box<RawValue>>,
    /// The payload as it was published.
    #[serde(deserialize_with = "payload")]
    pub payload: Box<RawValue>,
    #[serde(default)]
    pub priority: i32,
    pub ordering_key: Option<String>,
    pub correlation_id: Option<String>,
    pub traceparent: Option<String>,
    pub created_at: String,
    pub max_retries: i32,
    /// The number of the claim among all claims; it makes settlements exact.
    pub lease_id: i64,
    pub lease_expires_at: String,
    /// The number of this attempt, from 1.
    pub attempt: i32,
}

/// Reads a payload. `null` is a payload like any other.
fn payload<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<RawValue>, D::Error> {
    Box::<RawValue>::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_byte_for_byte() {
        for payload in ["null", r#"{"b": 1.10, "a":9007199254740993}"#, r#""\u0000""#] {
            let text = format!(
                r#"{{"id": 1, "title": "x", "tags": "a", "event_type": null, "labels": {{}}, "payload": {payload},
                     "created_at": "", "max_retries": 3, "lease_id": 7, "lease_expires_at": "", "attempt": 1, "new": 1}}"#
            );
            let event: ClaimedEvent = serde_json::from_str(&text).unwrap();
            assert_eq!(event.payload.get(), payload);
        }
    }

    #[test]
    fn what_is_not_set_is_not_sent() {
        let event = NewEvent::new("x", ["a", "b"]).payload(&17).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), r#"{"title":"x","tags":["a","b"],"payload":17}"#);
    }
}
