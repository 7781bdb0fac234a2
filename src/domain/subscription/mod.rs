//! A subscription: which events are sent to which URL, and how.

mod change;
mod choices;
mod credentials;
pub(crate) mod headers;
mod read;
mod reader;
mod renewal;
mod retry_on;
mod write;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use choices::{Method, OnExhausted, Ordering};
pub(crate) use credentials::Credentials;
pub(crate) use renewal::{Renewal, renew, renew_headers, renew_secret};
pub(crate) use retry_on::RetryOn;

use super::backoff::Backoff;
use super::encryption::StoredText;
use super::event_pattern::{self, EventPattern};
use super::filter::Filter;
use super::json::RawJson;
use super::path::JsonPath;
use super::seconds::Seconds;
use super::tags::Tags;
use super::transform::Transform;
use super::{limits, text};
use crate::domain::ids::SubscriptionId;

/// A stored subscription.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    pub id: SubscriptionId,
    /// Incremented by every change. A delivery records the version that it was sent with.
    pub version: i32,
    pub spec: SubscriptionSpec,
}

/// The settings of a subscription, checked and with defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriptionSpec {
    /// A display name.
    pub name: Option<String>,
    pub url: String,
    pub method: Method,
    /// Patterns of event types, one of which must match. If empty, every type matches except system
    /// events (see [`event_pattern::SYSTEM_PREFIX`]).
    pub event_types: Vec<EventPattern>,
    /// Tags that an event must have, all of them.
    pub tags: Tags,
    /// Labels that an event must have, all of them.
    pub labels: BTreeMap<String, String>,
    /// A further condition on events.
    pub filter: Option<Filter>,
    /// Headers to add to each request, as they are stored: their values may be encrypted.
    pub headers: BTreeMap<String, StoredText>,
    /// The timeout of one request, in milliseconds.
    pub timeout_ms: i32,
    /// The maximum number of requests for one event.
    pub max_attempts: i32,
    /// The waits between attempts.
    pub backoff: Backoff,
    /// The failures after which a request is retried.
    pub retry_on: RetryOn,
    /// Whether events with the same ordering key are sent one after another.
    pub ordering: Ordering,
    /// What happens to later events of an ordering key after a delivery is exhausted.
    pub on_exhausted: OnExhausted,
    /// The path of the ordering key in the payload. `None` means the event's own key.
    pub ordering_key_path: Option<JsonPath>,
    /// The maximum number of concurrent requests.
    pub max_concurrency: i32,
    /// The maximum number of requests per second. `None` means no limit.
    pub rate_per_second: Option<f64>,
    /// How the body is made from the payload. `None` sends the payload verbatim.
    pub transform: Option<Transform>,
}

impl SubscriptionSpec {
    /// Returns a subscription to `url` with default settings.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            name: None,
            url: url.into(),
            method: Method::default(),
            event_types: Vec::new(),
            tags: Tags::default(),
            labels: BTreeMap::new(),
            filter: None,
            headers: BTreeMap::new(),
            timeout_ms: limits::DEFAULT_TIMEOUT_MS,
            max_attempts: limits::DEFAULT_MAX_ATTEMPTS,
            backoff: Backoff::Schedule { seconds: limits::DEFAULT_BACKOFF_SECONDS.map(Seconds::whole).to_vec() },
            retry_on: RetryOn::default(),
            ordering: Ordering::default(),
            on_exhausted: OnExhausted::default(),
            ordering_key_path: None,
            max_concurrency: limits::DEFAULT_MAX_CONCURRENCY,
            rate_per_second: None,
            transform: None,
        }
    }

    /// Parses a stored subscription. It was checked before it was stored, so `None` means that a
    /// later version of the server wrote something that this version does not know.
    pub fn from_stored(json: &RawJson) -> Option<Self> {
        let mut fields: Map<String, Value> = serde_json::from_str(json.as_str()).ok()?;
        let headers = headers::of_stored(fields.remove("headers").as_ref());
        let spec = Self::parse(&fields).ok()?;
        Some(Self { headers, ..spec })
    }

    /// Returns whether the subscription includes events of this type.
    pub fn wants_type(&self, event_type: Option<&str>) -> bool {
        if self.event_types.is_empty() {
            return !event_pattern::is_system(event_type);
        }
        self.event_types.iter().any(|pattern| pattern.matches(event_type))
    }

    /// Returns the ordering key of an event: the value at `ordering_key_path` in the payload, or the
    /// event's `own` key if there is no path. Returns `None` if the subscription is not ordered or
    /// there is no key; the event then waits for no other event.
    pub fn ordering_key(&self, own: Option<&str>, payload: Option<&Value>) -> Option<String> {
        if self.ordering == Ordering::None {
            return None;
        }
        let Some(path) = &self.ordering_key_path else { return own.map(str::to_owned) };
        let key = match path.find(payload?)? {
            Value::String(text) => text.clone(),
            value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
            _ => return None,
        };
        text::check(&key, limits::NAME_CHARS).is_ok().then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ordered(path: Option<&str>) -> SubscriptionSpec {
        let ordering_key_path = path.map(|path| JsonPath::parse(path).unwrap());
        SubscriptionSpec { ordering: Ordering::ByKey, ordering_key_path, ..SubscriptionSpec::new("http://a") }
    }

    #[test]
    fn without_patterns_every_type_but_system_events_is_included() {
        let spec = SubscriptionSpec::new("http://a");
        assert!(spec.wants_type(None));
        assert!(spec.wants_type(Some("user.created")));
        assert!(!spec.wants_type(Some("waybill.delivery.exhausted")));
    }

    #[test]
    fn the_ordering_key_comes_from_the_payload_or_the_event() {
        let payload = json!({"user": {"id": 7, "tags": []}});
        let key = |spec: SubscriptionSpec| spec.ordering_key(Some("own"), Some(&payload));
        assert_eq!(key(SubscriptionSpec::new("http://a")), None);
        assert_eq!(key(ordered(None)).as_deref(), Some("own"));
        assert_eq!(key(ordered(Some("user.id"))).as_deref(), Some("7"));
        assert_eq!(key(ordered(Some("user.tags"))), None);
        assert_eq!(key(ordered(Some("user.name"))), None);
        assert_eq!(ordered(Some("user.id")).ordering_key(Some("own"), None), None);
    }
}
