//! The fields of an event that subscriptions may test.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::work::{Allowance, Stopped};

/// An event to be matched. The payload is parsed at most once, when a filter first reads it.
#[derive(Debug)]
pub struct Subject<'a> {
    pub event_type: Option<&'a str>,
    pub tags: &'a [String],
    pub labels: &'a BTreeMap<String, String>,
    /// The time of publishing.
    pub created_at: DateTime<Utc>,
    raw_payload: &'a str,
    payload: OnceCell<Option<Value>>,
}

impl<'a> Subject<'a> {
    /// Creates a subject. `payload` is JSON text; `None` means null.
    pub fn new(
        event_type: Option<&'a str>,
        tags: &'a [String],
        labels: &'a BTreeMap<String, String>,
        payload: Option<&'a str>,
        created_at: DateTime<Utc>,
    ) -> Self {
        Self { event_type, tags, labels, created_at, raw_payload: payload.unwrap_or("null"), payload: OnceCell::new() }
    }

    /// Returns the parsed payload, or `None` if it cannot be parsed. Some payloads can be stored and
    /// sent but not parsed: numbers too large for a float, unpaired surrogates, nesting at the
    /// limit. No condition on an unparsable payload finds a value.
    pub fn payload(&self, allowance: &mut Allowance<'_>) -> Result<Option<&Value>, Stopped> {
        if self.payload.get().is_none() {
            allowance.parse(self.raw_payload.len())?;
        }
        Ok(self.payload.get_or_init(|| serde_json::from_str(self.raw_payload).ok()).as_ref())
    }

    /// Returns the length of the payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.raw_payload.len()
    }

    /// Returns whether the payload has been parsed.
    #[cfg(test)]
    pub(super) fn was_parsed(&self) -> bool {
        self.payload.get().is_some()
    }
}
