//! Events. An event is written once and never changed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{backoff::Backoff, idempotency::IdempotencyKey, json::RawJson, limits, seconds::Seconds, tags::Tags};

/// The time at which an event may first be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAt {
    Now,
    At(DateTime<Utc>),
    /// This long after the event is stored, by the database's clock.
    After(Seconds),
}

/// An event to be stored: checked, and complete except for what the database adds.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// A short description for display.
    pub title: String,
    /// A longer description for display.
    pub description: Option<String>,
    pub event_type: Option<String>,
    /// The tags by which workers claim the event. An event without tags is only pushed.
    pub tags: Tags,
    /// Names and values to filter by.
    pub labels: BTreeMap<String, String>,
    /// The payload, verbatim.
    pub payload: Option<RawJson>,
    /// Events with a higher priority are claimed first.
    pub priority: i16,
    /// The maximum number of attempts.
    pub max_retries: i32,
    /// The waits between attempts. `None` means the server's default.
    pub backoff: Option<Backoff>,
    /// Events with the same key are processed one at a time, in the order of publishing.
    pub ordering_key: Option<String>,
    /// Links related events.
    pub correlation_id: Option<String>,
    /// The W3C trace context of the publisher.
    pub traceparent: Option<String>,
    pub run_at: RunAt,
    /// The event fails if it is not claimed before this time.
    pub expires_at: Option<DateTime<Utc>>,
    /// With this key, the event is stored once, however often it is published.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The name of the key or the source that it was published with.
    pub published_by: Option<Arc<str>>,
    pub client_address: Option<IpAddr>,
}

impl NewEvent {
    /// Returns an event with a title and defaults for everything else.
    pub fn titled(title: String) -> Self {
        NewEvent {
            title,
            description: None,
            event_type: None,
            tags: Tags::default(),
            labels: BTreeMap::new(),
            payload: None,
            priority: 0,
            max_retries: limits::DEFAULT_MAX_RETRIES,
            backoff: None,
            ordering_key: None,
            correlation_id: None,
            traceparent: None,
            run_at: RunAt::Now,
            expires_at: None,
            idempotency_key: None,
            published_by: None,
            client_address: None,
        }
    }
}
