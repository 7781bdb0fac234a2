//! An event is made into a request: the body as the subscription wants it, signed as Standard
//! Webhooks has it, with what the receiver may want to know in headers.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::WebhookRequest;
use crate::domain::ids::EventId;
use crate::domain::signature::{Secret, sign};
use crate::domain::subscription::SubscriptionSpec;
use crate::domain::transform::{TransformInput, render};

/// Where events come from, as CloudEvents has it.
const SOURCE: &str = "urn:waybill";

/// An event on its way to one receiver.
#[derive(Debug, Clone)]
pub struct OutboundMessage {
    /// What the receiver knows the event by, the same in every attempt.
    pub webhook_id: String,
    /// What kind of thing happened.
    pub event_type: Option<String>,
    /// A line for people.
    pub title: String,
    /// When it was published.
    pub time: DateTime<Utc>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What happened, as JSON text.
    pub payload: String,
    /// Ties events of one story together.
    pub correlation_id: Option<String>,
    /// By which it is kept in order.
    pub ordering_key: Option<String>,
    /// The W3C trace that it belongs to.
    pub traceparent: Option<String>,
    /// Which attempt this is.
    pub attempt: i32,
}

impl OutboundMessage {
    /// Returns the name by which receivers know an event. The epoch makes it unique even where a
    /// restore has the database give out an id again. No `.` in it: that separates what is signed.
    pub fn webhook_id(epoch: &str, event_id: EventId) -> String {
        format!("evt_{epoch}_{event_id}")
    }

    /// The request that carries it.
    pub fn into_request(
        self,
        spec: &SubscriptionSpec,
        secrets: &[Secret],
        timestamp: i64,
    ) -> Result<WebhookRequest, String> {
        let rendered = render(spec.transform.as_ref(), &self.parcel())?;
        let signature = sign(secrets, &self.webhook_id, timestamp, &rendered.body);
        let mut headers = vec![
            ("content-type".to_owned(), rendered.content_type),
            ("webhook-timestamp".to_owned(), timestamp.to_string()),
            ("webhook-signature".to_owned(), signature),
            ("waybill-attempt".to_owned(), self.attempt.to_string()),
        ];
        let known = [
            ("webhook-id", Some(self.webhook_id)),
            ("waybill-event-type", self.event_type),
            ("waybill-correlation-id", self.correlation_id),
            ("traceparent", self.traceparent),
        ];
        headers.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), header_value(&value?)))));
        headers.extend(rendered.headers);
        headers.extend(spec.headers.clone());
        Ok(WebhookRequest {
            method: spec.method.as_str().to_owned(),
            url: spec.url.clone(),
            headers,
            body: rendered.body,
            timeout: Duration::from_millis(u64::try_from(spec.timeout_ms).unwrap_or_default()),
        })
    }

    fn parcel(&self) -> TransformInput<'_> {
        TransformInput {
            webhook_id: &self.webhook_id,
            event_type: self.event_type.as_deref(),
            title: &self.title,
            time: self.time,
            tags: &self.tags,
            labels: &self.labels,
            payload: &self.payload,
            correlation_id: self.correlation_id.as_deref(),
            ordering_key: self.ordering_key.as_deref(),
            source: SOURCE,
        }
    }
}

/// Publishers choose freely, and headers carry little more than letters: the rest is written as
/// in URLs.
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
