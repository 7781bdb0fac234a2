//! Patterns of event types.

use std::fmt;

use super::{limits, text};

/// The prefix of the types of system events. A subscription receives them only if it names them:
/// an endpoint must not receive a report of its own failure unless it expects one.
pub(crate) const SYSTEM_PREFIX: &str = "waybill.";

/// One pattern: `user.created`, `user.*` or `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventPattern {
    /// Exactly this type.
    Exact(String),
    /// All types with this prefix, at any depth. The prefix includes its final dot, such as `user.`.
    Prefix(String),
    /// All events, with or without a type, except system events.
    Everything,
}

impl EventPattern {
    /// Parses a pattern. The error is the reason for refusal.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        text::check(pattern, limits::NAME_CHARS)?;
        if pattern == "*" {
            return Ok(Self::Everything);
        }
        let parsed = match pattern.strip_suffix('*') {
            Some(prefix) if prefix.ends_with('.') && prefix.len() > 1 => Self::Prefix(prefix.to_owned()),
            _ => Self::Exact(pattern.to_owned()),
        };
        match &parsed {
            Self::Exact(text) | Self::Prefix(text) if text.contains('*') => {
                Err("may have a `*` only alone, or at the end after a dot".into())
            }
            _ => Ok(parsed),
        }
    }

    /// Returns whether an event of this type matches.
    pub fn matches(&self, event_type: Option<&str>) -> bool {
        match self {
            Self::Exact(wanted) => event_type == Some(wanted),
            Self::Prefix(prefix) => event_type.is_some_and(|known| known.starts_with(prefix)),
            Self::Everything => !is_system(event_type),
        }
    }
}

/// Returns whether an event of this type is a system event.
pub(crate) fn is_system(event_type: Option<&str>) -> bool {
    event_type.is_some_and(|known| known.starts_with(SYSTEM_PREFIX))
}

impl fmt::Display for EventPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => out.write_str(text),
            Self::Prefix(prefix) => write!(out, "{prefix}*"),
            Self::Everything => out.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, event_type: Option<&str>) -> bool {
        EventPattern::parse(pattern).unwrap().matches(event_type)
    }

    #[test]
    fn a_name_matches_only_itself() {
        assert!(matches("user.created", Some("user.created")));
        assert!(!matches("user.created", Some("user.created.twice")));
        assert!(!matches("user.created", Some("USER.created")));
        assert!(!matches("user.created", None));
    }

    #[test]
    fn a_prefix_matches_at_any_depth_but_not_its_neighbours() {
        assert!(matches("user.*", Some("user.created")));
        assert!(matches("user.*", Some("user.address.changed")));
        assert!(!matches("user.*", Some("user")));
        assert!(!matches("user.*", Some("users.created")));
        assert!(!matches("user.*", None));
    }

    #[test]
    fn everything_excludes_system_events() {
        assert!(matches("*", Some("user.created")));
        assert!(matches("*", Some("waybill")));
        assert!(matches("*", None));
        assert!(!matches("*", Some("waybill.delivery.exhausted")));
        assert!(matches("waybill.*", Some("waybill.delivery.exhausted")));
        assert!(matches("waybill.delivery.*", Some("waybill.delivery.exhausted")));
        assert!(matches("waybill.delivery.exhausted", Some("waybill.delivery.exhausted")));
    }

    #[test]
    fn a_star_elsewhere_is_refused() {
        for bad in ["", "**", ".*", "user*", "*.created", "us*er.created", "user.*.created", "*.*", "a\0"] {
            assert!(EventPattern::parse(bad).is_err(), "{bad:?}");
        }
        assert!(EventPattern::parse(&"x".repeat(256)).is_err());
    }

    proptest! {
        #[test]
        fn a_pattern_survives_serialisation(pattern in "[a-c.*]{0,8}") {
            if let Ok(parsed) = EventPattern::parse(&pattern) {
                prop_assert_eq!(parsed.to_string(), pattern);
            }
        }
    }
}
