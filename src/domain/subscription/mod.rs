//! A subscription: which events go where, and how.

mod choices;
pub mod headers;
mod read;
mod reader;
mod retry_on;
mod write;

use std::collections::BTreeMap;

use serde_json::Value;

pub use choices::{Method, OnExhausted, Ordering};
pub use retry_on::RetryOn;

use super::backoff::Backoff;
use super::event_pattern::{self, EventPattern};
use super::filter::Filter;
use super::json::RawJson;
use super::path::JsonPath;
use super::seconds::Seconds;
use super::tags::Tags;
use super::transform::Transform;
use super::{limits, text};
use crate::domain::ids::SubscriptionId;

/// A subscription as it is stored: what was asked for, under a number, at a version.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    /// Its number.
    pub id: SubscriptionId,
    /// Counts its changes, so that a delivery can say by which one it was made.
    pub version: i32,
    /// What was asked for.
    pub spec: SubscriptionSpec,
}

/// What a subscriber asks for: checked and complete.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriptionSpec {
    /// A name for people.
    pub name: Option<String>,
    /// The address that is called.
    pub url: String,
    /// How it is called.
    pub method: Method,
    /// Types of events, of which one is enough; none: any type, but the system's own.
    pub event_types: Vec<EventPattern>,
    /// Tags that an event must all have.
    pub tags: Tags,
    /// Labels that an event must all have.
    pub labels: BTreeMap<String, String>,
    /// What else must be true of an event.
    pub filter: Option<Filter>,
    /// Headers to add to each call. They may hold secrets: not for logs.
    pub headers: BTreeMap<String, String>,
    /// How long one call may take, in milliseconds.
    pub timeout_ms: i32,
    /// Calls for one event in all.
    pub max_attempts: i32,
    /// Waits between calls.
    pub retry: Backoff,
    /// Which failures are worth another call.
    pub retry_on: RetryOn,
    /// Whether events of one key wait for each other.
    pub ordering: Ordering,
    /// What becomes of the events behind one that was given up.
    pub on_exhausted: OnExhausted,
    /// Where in the payload the key is, if it is not the event's own.
    pub ordering_key_path: Option<JsonPath>,
    /// Calls under way at once.
    pub max_concurrency: i32,
    /// Calls per second.
    pub rate_per_second: Option<f64>,
    /// What is made of the payload.
    pub transform: Option<Transform>,
}

impl SubscriptionSpec {
    /// What a subscription to `url` gets that says nothing else.
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
            retry: Backoff::Schedule { seconds: limits::DEFAULT_RETRY_SECONDS.map(Seconds::whole).to_vec() },
            retry_on: RetryOn::default(),
            ordering: Ordering::default(),
            on_exhausted: OnExhausted::default(),
            ordering_key_path: None,
            max_concurrency: limits::DEFAULT_MAX_CONCURRENCY,
            rate_per_second: None,
            transform: None,
        }
    }

    /// Reads what was stored. It was checked then; none if a later version wrote what this one
    /// does not know.
    pub fn from_stored(json: &RawJson) -> Option<Self> {
        Self::parse(&serde_json::from_str(json.as_str()).ok()?).ok()
    }

    /// Whether it is after events of this type.
    pub fn wants_type(&self, event_type: Option<&str>) -> bool {
        if self.event_types.is_empty() {
            return !event_pattern::is_system(event_type);
        }
        self.event_types.iter().any(|pattern| pattern.matches(event_type))
    }

    /// The key by which an event is kept in order: what the path finds in the payload, else
    /// the event's own. Nothing, if order is of no concern or there is no key: such an event
    /// waits for nobody.
    pub fn ordering_key(&self, own: Option<&str>, payload: Option<&Value>) -> Option<String> {
        if self.ordering == Ordering::None {
            return None;
        }
        let Some(path) = &self.ordering_key_path else { return own.map(str::to_owned) };
        let key = match path.find(payload?)? {
            Value::String(word) => word.clone(),
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
    fn without_patterns_any_type_is_wanted_but_the_systems_own() {
        let spec = SubscriptionSpec::new("http://a");
        assert!(spec.wants_type(None));
        assert!(spec.wants_type(Some("user.created")));
        assert!(!spec.wants_type(Some("waybill.delivery.exhausted")));
    }

    #[test]
    fn the_key_is_found_in_the_payload_or_is_the_events_own() {
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
