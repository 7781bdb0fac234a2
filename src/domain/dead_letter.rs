//! Dead letters: why a push was abandoned, and how it may be replayed.

use crate::domain::ids::EventId;

/// The reasons why a push is abandoned.
pub(crate) const REASONS: [&str; 5] = ["exhausted", "terminal", "expired", "poison", "manual"];

/// Parses one of [`REASONS`].
pub(crate) fn parse_reason(name: &str) -> Option<&'static str> {
    REASONS.into_iter().find(|reason| *reason == name)
}

/// The settings with which a dead letter is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayConfig {
    /// The current settings of its subscription.
    #[default]
    Current,
    /// The settings of its subscription when the push was abandoned.
    Original,
}

impl ReplayConfig {
    /// Returns the name used in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplayConfig::Current => "current",
            ReplayConfig::Original => "original",
        }
    }

    /// Parses a name, or returns `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        [ReplayConfig::Current, ReplayConfig::Original].into_iter().find(|config| config.as_str() == name)
    }
}

/// Returns a new `webhook-id` for a replay that the receiver must not treat as a duplicate of the
/// original request. It has no `.`, because that separates the parts of the signed content.
pub(crate) fn new_webhook_id(epoch: &str, event_id: EventId, dead_letter_id: i64) -> String {
    format!("evt_{epoch}_{event_id}_r{dead_letter_id}")
}
