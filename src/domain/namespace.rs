//! Namespaces: the tenants that everything belongs to.
//!
//! A name begins with a letter, so that it is never taken for the id of a namespace. It never changes: servers and
//! clients may remember for ever which namespace it means.

use serde::{Deserialize, Serialize};

use crate::domain::input::RawFields;
use crate::domain::publish_limits::NamespaceLimits;
use crate::domain::redaction::Redaction;

/// The maximum length of a name. It fits into a label of a host name.
pub(crate) const NAME_CHARS: usize = 63;

const SHAPE: &str =
    "must be 1 to 63 lower-case letters, digits and hyphens, begin with a letter and not end with a hyphen";

/// Checks that `name` can be the name of a namespace.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let is_name = begins_well && name.len() <= NAME_CHARS && name.bytes().all(is_fine) && !name.ends_with('-');
    if is_name { Ok(()) } else { Err(SHAPE.into()) }
}

/// What an administrator sets for a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceSettings {
    /// Whether events of types that are not declared are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_event_types: Option<bool>,
    /// What the namespace may have or do at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<NamespaceLimits>,
    /// The patterns of the fields that nobody is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redact: Option<Vec<String>>,
}

const STRICT_EVENT_TYPES: &str = "strict_event_types";
const LIMITS: &str = "limits";
const REDACT: &str = "redact";

/// The names of the settings on which the check of events depends.
pub(crate) const CHECKED_SETTINGS: [&str; 2] = [STRICT_EVENT_TYPES, LIMITS];

impl NamespaceSettings {
    /// Reads the settings that a request gives. Fields that are not read here are refused as unknown.
    #[expect(clippy::unnecessary_wraps, reason = "the form of all readers of objects")]
    pub(crate) fn read(fields: &mut RawFields<'_>) -> Option<Self> {
        // As in all updates, `null` restores the default.
        let is_null = fields.contains(LIMITS) && !fields.is_given(LIMITS);
        let limits = fields.object(LIMITS, NamespaceLimits::read);
        Some(NamespaceSettings {
            strict_event_types: fields.boolean(STRICT_EVENT_TYPES),
            limits: if is_null { Some(NamespaceLimits::default()) } else { limits },
            redact: read_patterns(fields),
        })
    }

    /// Returns what is redacted.
    pub(crate) fn redaction(&self) -> Redaction {
        self.redact.as_deref().map(Redaction::stored).unwrap_or_default()
    }
}

/// Reads the patterns of redacted fields. `null` removes all.
fn read_patterns(fields: &mut RawFields<'_>) -> Option<Vec<String>> {
    if fields.contains(REDACT) && !fields.is_given(REDACT) {
        fields.take(REDACT);
        return Some(Vec::new());
    }
    let patterns: Vec<String> = fields.value(REDACT, "a list of strings")?;
    match Redaction::parse(&patterns) {
        Ok(_) => Some(patterns),
        Err(reason) => {
            fields.refuse(REDACT, reason);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_are_labels_that_begin_with_a_letter() {
        for good in ["a", "default", "team-7", "b2", &"x".repeat(63)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "7", "7up", "-a", "a-", "Team", "a_b", "a.b", "ä", "a b", &"x".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
