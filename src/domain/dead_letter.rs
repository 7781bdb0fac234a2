//! Dead letters: why a push was given up, and how it may be sent again.

use crate::domain::ids::EventId;

/// Why a push was given up: a closed list.
pub const REASONS: [&str; 5] = ["exhausted", "terminal", "expired", "poison", "manual"];

/// Reads one of [`REASONS`].
pub fn parse_reason(word: &str) -> Option<&'static str> {
    REASONS.into_iter().find(|reason| *reason == word)
}

/// How a dead letter is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayConfig {
    /// As its subscription says by now.
    #[default]
    Current,
    /// As its subscription said when it was given up.
    Original,
}

impl ReplayConfig {
    /// The word used in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplayConfig::Current => "current",
            ReplayConfig::Original => "original",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        [ReplayConfig::Current, ReplayConfig::Original].into_iter().find(|config| config.as_str() == word)
    }
}

/// What the receiver knows a replay by that must not be taken for what it has seen before. No `.`
/// in it: that separates what is signed.
pub fn new_webhook_id(epoch: &str, event_id: EventId, dead_letter_id: i64) -> String {
    format!("evt_{epoch}_{event_id}_r{dead_letter_id}")
}
