//! Idempotency keys: a request that is sent twice causes one event.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::event::{NewEvent, RunAt};

/// Who chooses a key. The same key of two origins is two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyOrigin {
    /// Publishers, at `/events`.
    Publishers,
    /// Senders of webhooks to the inbox, at `/webhooks`.
    Inbox,
    /// CloudEvents, whose key is their source and id.
    CloudEvents,
    /// The provider behind a source, by the id of the source.
    Source(i64),
}

impl KeyOrigin {
    /// Returns the number that is stored. Ids of sources are positive.
    pub fn number(self) -> i64 {
        match self {
            KeyOrigin::Publishers => 0,
            KeyOrigin::Inbox => -1,
            KeyOrigin::CloudEvents => -2,
            KeyOrigin::Source(id) => id,
        }
    }

    /// Returns whether a repeated request must have the same content. Others send what they send, and only their key
    /// counts.
    fn compares_content(self) -> bool {
        matches!(self, KeyOrigin::Publishers | KeyOrigin::CloudEvents)
    }

    /// Returns whether a key is kept as long as its event.
    pub fn lives_with_event(self) -> bool {
        self == KeyOrigin::Inbox
    }
}

/// The key of a new event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub origin: KeyOrigin,
    pub key: String,
    /// A hash of the content, or empty if the content does not matter.
    pub fingerprint: Vec<u8>,
}

/// The number of bytes of a fingerprint: enough that two contents never have the same by chance.
const FINGERPRINT_BYTES: usize = 16;

/// What makes two requests the same: everything but the trace, which differs with every attempt to send.
#[derive(Serialize)]
struct Content<'a> {
    title: &'a str,
    description: Option<&'a str>,
    event_type: Option<&'a str>,
    tags: &'a [String],
    labels: &'a std::collections::BTreeMap<String, String>,
    payload: Option<&'a str>,
    priority: i16,
    max_retries: i32,
    backoff: Option<&'a super::backoff::Backoff>,
    ordering_key: Option<&'a str>,
    correlation_id: Option<&'a str>,
    run_at: Option<i64>,
    delay_seconds: Option<f64>,
    expires_at: Option<i64>,
}

impl IdempotencyKey {
    /// Returns the key of an event, with the fingerprint of its content.
    pub fn of(origin: KeyOrigin, key: String, event: &NewEvent) -> Self {
        let fingerprint = if origin.compares_content() { fingerprint(event) } else { Vec::new() };
        IdempotencyKey { origin, key, fingerprint }
    }
}

fn fingerprint(event: &NewEvent) -> Vec<u8> {
    let (run_at, delay_seconds) = match event.run_at {
        RunAt::Now => (None, None),
        RunAt::At(time) => (Some(time.timestamp_micros()), None),
        RunAt::After(seconds) => (None, Some(seconds.as_f64())),
    };
    let content = Content {
        title: &event.title,
        description: event.description.as_deref(),
        event_type: event.event_type.as_deref(),
        tags: event.tags.as_slice(),
        labels: &event.labels,
        payload: event.payload.as_ref().map(super::json::RawJson::as_str),
        priority: event.priority,
        max_retries: event.max_retries,
        backoff: event.backoff.as_ref(),
        ordering_key: event.ordering_key.as_deref(),
        correlation_id: event.correlation_id.as_deref(),
        run_at,
        delay_seconds,
        expires_at: event.expires_at.map(|time| time.timestamp_micros()),
    };
    // Strings, numbers and maps with string keys can always be serialised.
    let bytes = serde_json::to_vec(&content).expect("plain data can be serialised");
    Sha256::digest(&bytes)[..FINGERPRINT_BYTES].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(change: impl Fn(&mut NewEvent)) -> Vec<u8> {
        let mut event = NewEvent::titled("a job".into());
        change(&mut event);
        IdempotencyKey::of(KeyOrigin::Publishers, "k".into(), &event).fingerprint
    }

    #[test]
    fn the_same_content_has_the_same_fingerprint_whatever_its_trace() {
        let traced = key(|event| event.traceparent = Some("00-1-2-01".into()));
        assert_eq!((traced.len(), &traced), (FINGERPRINT_BYTES, &key(|_| {})));
    }

    #[test]
    fn each_field_is_part_of_the_fingerprint() {
        let changes: &[&dyn Fn(&mut NewEvent)] = &[
            &|event| event.title = "another".into(),
            &|event| event.description = Some(String::new()),
            &|event| event.event_type = Some("a".into()),
            &|event| event.tags = vec!["a".to_owned()].into(),
            &|event| _ = event.labels.insert("a".into(), "b".into()),
            &|event| event.payload = Some(crate::domain::json::RawJson::of(&1).unwrap()),
            &|event| event.priority = 1,
            &|event| event.max_retries = 9,
            &|event| event.ordering_key = Some("a".into()),
            &|event| event.correlation_id = Some("a".into()),
            &|event| event.run_at = RunAt::At(chrono::DateTime::UNIX_EPOCH),
            &|event| event.run_at = RunAt::After(crate::domain::seconds::Seconds::whole(5)),
            &|event| event.expires_at = Some(chrono::DateTime::UNIX_EPOCH),
        ];
        let mut seen = std::collections::HashSet::from([key(|_| {})]);
        for (number, change) in changes.iter().enumerate() {
            assert!(seen.insert(key(change)), "change {number}");
        }
    }

    #[test]
    fn the_content_of_a_foreign_webhook_does_not_matter() {
        for origin in [KeyOrigin::Inbox, KeyOrigin::Source(7)] {
            let event = NewEvent::titled("a job".into());
            assert!(IdempotencyKey::of(origin, "k".into(), &event).fingerprint.is_empty());
        }
    }
}
