//! An event, as far as subscriptions may ask about it.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::work::{Allowance, Stopped};

/// What is known of an event. The payload is parsed when somebody first asks for it, and once.
#[derive(Debug)]
pub struct Subject<'a> {
    /// What kind of thing happened.
    pub event_type: Option<&'a str>,
    /// Its tags.
    pub tags: &'a [String],
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// When it was published.
    pub time: DateTime<Utc>,
    raw_payload: &'a str,
    payload: OnceCell<Option<Value>>,
}

impl<'a> Subject<'a> {
    /// An event with a payload of this JSON text; none is null.
    pub fn new(
        event_type: Option<&'a str>,
        tags: &'a [String],
        labels: &'a BTreeMap<String, String>,
        payload: Option<&'a str>,
        time: DateTime<Utc>,
    ) -> Self {
        Self { event_type, tags, labels, time, raw_payload: payload.unwrap_or("null"), payload: OnceCell::new() }
    }

    /// The payload. There are payloads that can be passed on but not looked into: numbers too
    /// large for a float, halves of surrogate pairs, nesting to the very limit. Nothing in them
    /// is found.
    pub fn payload(&self, allowance: &mut Allowance<'_>) -> Result<Option<&Value>, Stopped> {
        if self.payload.get().is_none() {
            allowance.parse(self.raw_payload.len())?;
        }
        Ok(self.payload.get_or_init(|| serde_json::from_str(self.raw_payload).ok()).as_ref())
    }

    /// Returns how many bytes the payload has.
    pub fn payload_bytes(&self) -> usize {
        self.raw_payload.len()
    }

    /// Whether the payload had to be parsed.
    #[cfg(test)]
    pub(super) fn was_parsed(&self) -> bool {
        self.payload.get().is_some()
    }
}
