//! Converts an event into a request: renders the body as the subscription defines it, signs it according
//! to Standard Webhooks, and adds metadata of the event as headers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};

use super::WebhookRequest;
use crate::domain::ids::EventId;
use crate::domain::signature::{Secret, sign};
use crate::domain::subscription::{Credentials, SubscriptionSpec};
use crate::domain::transform::{Transform, TransformInput, render};

/// The `source` attribute of CloudEvents.
const SOURCE: &str = "urn:waybill";

/// An event to be sent to one receiver.
#[derive(Debug, Clone)]
pub struct OutboundMessage {
    /// The id by which the receiver identifies the event; the same in every attempt.
    pub webhook_id: String,
    /// `None` for a test, which has no event.
    pub event_id: Option<EventId>,
    pub event_type: Option<String>,
    pub title: String,
    /// The time of publishing.
    pub created_at: DateTime<Utc>,
    pub tags: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// The payload as JSON text.
    pub payload: String,
    pub correlation_id: Option<String>,
    pub ordering_key: Option<String>,
    /// The W3C trace of the event.
    pub traceparent: Option<String>,
    /// The number of the attempt, counted from 1.
    pub attempt: i32,
}

impl OutboundMessage {
    /// Returns the id by which receivers identify an event. The epoch keeps it unique even if the database
    /// issues an event id again after a restore. It contains no `.` because that separates the signed parts.
    pub fn webhook_id(epoch: &str, event_id: EventId) -> String {
        format!("evt_{epoch}_{event_id}")
    }

    /// Renders and signs the request.
    pub fn into_request(
        self,
        spec: &SubscriptionSpec,
        credentials: &Credentials,
        timestamp: i64,
    ) -> Result<WebhookRequest, String> {
        let rendered = render(spec.transform.as_ref(), &self.transform_input())?;
        let signature = sign(&credentials.secrets, &self.webhook_id, timestamp, &rendered.body);
        let mut headers = vec![
            ("content-type".to_owned(), rendered.content_type),
            ("webhook-timestamp".to_owned(), timestamp.to_string()),
            ("webhook-signature".to_owned(), signature),
            ("waybill-attempt".to_owned(), self.attempt.to_string()),
        ];
        let optional = [
            ("webhook-id", Some(self.webhook_id)),
            ("waybill-event-id", self.event_id.map(|id| id.to_string())),
            ("waybill-event-type", self.event_type),
            ("waybill-correlation-id", self.correlation_id),
            ("traceparent", self.traceparent),
        ];
        headers.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), header_value(&value?)))));
        headers.extend(rendered.headers);
        headers.extend(credentials.headers.clone());
        Ok(WebhookRequest {
            method: spec.method.as_str().to_owned(),
            url: spec.url.clone(),
            headers,
            body: rendered.body,
            timeout: Duration::from_millis(u64::try_from(spec.timeout_ms).unwrap_or_default()),
            redacted: redacted(credentials),
        })
    }

    /// Renders the body of the request without sending it. Returns its content type as well.
    pub fn preview(&self, transform: Option<&Transform>) -> Result<(String, Bytes), String> {
        render(transform, &self.transform_input()).map(|rendered| (rendered.content_type, rendered.body))
    }

    fn transform_input(&self) -> TransformInput<'_> {
        TransformInput {
            webhook_id: &self.webhook_id,
            event_id: self.event_id,
            event_type: self.event_type.as_deref(),
            title: &self.title,
            created_at: self.created_at,
            tags: &self.tags,
            labels: &self.labels,
            payload: &self.payload,
            correlation_id: self.correlation_id.as_deref(),
            ordering_key: self.ordering_key.as_deref(),
            source: SOURCE,
        }
    }
}

/// Returns the texts that are not kept if the receiver repeats them: the secrets, the values of the headers, and the
/// words of these values, since a receiver may repeat the token of `Bearer <token>` alone.
fn redacted(credentials: &Credentials) -> Vec<String> {
    let secrets = credentials.secrets.iter().map(Secret::as_text);
    let values = credentials.headers.values();
    let words = values.clone().flat_map(|value| value.split_whitespace());
    secrets.chain(values.cloned()).chain(words.map(str::to_owned)).collect()
}

/// Percent-encodes a header value. Publishers may use any character, but headers allow only visible ASCII.
fn header_value(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=0x20 | 0x7f.. => value.push_str(&format!("%{byte:02X}")),
            _ => value.push(char::from(byte)),
        }
    }
    value
}
