//! What a key allows.

use std::fmt;

/// One thing that a key may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyScope {
    /// Publish events.
    Publish,
    /// Claim and settle events.
    Work,
    /// Read events, deliveries, logs and everything else that is listed, but no content.
    Read,
    /// See the content too: payloads, results, progress and error texts.
    Reveal,
    /// Change what is not one's own work: reset, retry, cancel, replay, and edit subscriptions.
    Operate,
    /// Everything, including keys.
    Admin,
}

impl KeyScope {
    pub const ALL: [KeyScope; 6] =
        [KeyScope::Publish, KeyScope::Work, KeyScope::Read, KeyScope::Reveal, KeyScope::Operate, KeyScope::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            KeyScope::Publish => "publish",
            KeyScope::Work => "work",
            KeyScope::Read => "read",
            KeyScope::Reveal => "reveal",
            KeyScope::Operate => "operate",
            KeyScope::Admin => "admin",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        KeyScope::ALL.into_iter().find(|scope| scope.as_str() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The scopes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyScopes(u8);

impl KeyScopes {
    pub fn of(scopes: impl IntoIterator<Item = KeyScope>) -> Self {
        KeyScopes(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }

    /// Returns the scopes with these names. A name that this version does not know allows nothing.
    pub fn of_known_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(names.into_iter().filter_map(KeyScope::parse))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether these scopes allow `scope`. `admin` allows everything.
    pub fn allow(self, scope: KeyScope) -> bool {
        self.0 & (scope.bit() | KeyScope::Admin.bit()) != 0
    }

    /// Returns the first of `others` that these scopes do not allow, or `None` if they allow all.
    pub fn first_missing(self, others: KeyScopes) -> Option<KeyScope> {
        others.iter().find(|scope| !self.allow(*scope))
    }

    /// Returns the scopes that were given, without those that `admin` implies.
    pub fn iter(self) -> impl Iterator<Item = KeyScope> {
        KeyScope::ALL.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }

    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(KeyScope::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_allows_itself_and_admin_allows_everything() {
        for scope in KeyScope::ALL {
            for other in KeyScope::ALL {
                let expected = scope == other || scope == KeyScope::Admin;
                assert_eq!(KeyScopes::of([scope]).allow(other), expected, "{scope} {other}");
            }
            assert!(!KeyScopes::default().allow(scope));
            assert_eq!(KeyScope::parse(scope.as_str()), Some(scope));
        }
    }

    #[test]
    fn names_survive_and_unknown_ones_allow_nothing() {
        let scopes = KeyScopes::of_known_names(["work", "publish", "fly"]);
        assert_eq!(scopes.names(), ["publish", "work"]);
        assert!(KeyScopes::of_known_names(["fly"]).is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        let worker = KeyScopes::of([KeyScope::Work]);
        assert_eq!(worker.first_missing(worker), None);
        assert_eq!(worker.first_missing(KeyScopes::of([KeyScope::Work, KeyScope::Operate])), Some(KeyScope::Operate));
        assert_eq!(KeyScopes::of([KeyScope::Admin]).first_missing(KeyScopes::of(KeyScope::ALL)), None);
    }
}
