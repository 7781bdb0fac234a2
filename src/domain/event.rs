//! An event: a fact, written once.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{backoff::Backoff, json::RawJson, seconds::Seconds, tags::Tags};

/// When an event may first be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAt {
    /// At once.
    Now,
    /// At a time.
    At(DateTime<Utc>),
    /// So many seconds after it is stored, by the database's clock.
    After(Seconds),
}

/// What a publisher asks to be stored: checked, and complete but for what the database adds.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// A line for people.
    pub title: String,
    /// More for people.
    pub description: Option<String>,
    /// What kind of thing happened.
    pub event_type: Option<String>,
    /// Who may work on it; none: pushed only.
    pub tags: Tags,
    /// Names and values to filter by.
    pub labels: BTreeMap<String, String>,
    /// What happened, verbatim.
    pub payload: Option<RawJson>,
    /// Higher first.
    pub priority: i16,
    /// Attempts in all.
    pub max_retries: i32,
    /// Waits between attempts; the server's default if it does not say.
    pub backoff: Option<Backoff>,
    /// Events of one key are worked on one at a time, in order.
    pub ordering_key: Option<String>,
    /// Ties events of one story together.
    pub correlation_id: Option<String>,
    /// The W3C trace that it belongs to.
    pub traceparent: Option<String>,
    /// Not before this.
    pub run_at: RunAt,
    /// Worthless after this, unless claimed before.
    pub expires_at: Option<DateTime<Utc>>,
}
