//! What a namespace declares about the types of its events.

use std::collections::BTreeMap;

use crate::domain::event_pattern::is_system;

/// The event types of a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TypeCatalog {
    /// Each declared type, with the digest of its schema, if it has one.
    digests: BTreeMap<String, Option<String>>,
    /// Whether events of other types are refused.
    is_strict: bool,
}

impl TypeCatalog {
    pub(crate) fn new(digests: BTreeMap<String, Option<String>>, is_strict: bool) -> Self {
        TypeCatalog { digests, is_strict }
    }

    /// Returns whether every event is accepted.
    pub(crate) fn accepts_all(&self) -> bool {
        !self.is_strict && self.digests.is_empty()
    }

    /// Returns whether events of a type are refused whatever their payload is. An event without a type has nothing that
    /// could be declared.
    pub(crate) fn refuses(&self, event_type: Option<&str>) -> bool {
        let is_unknown = |name: &str| !self.digests.contains_key(name) && !is_system(Some(name));
        self.is_strict && event_type.is_some_and(is_unknown)
    }

    /// Returns the digest of the schema that the payloads of a type must satisfy, or `None` if any will do.
    pub(crate) fn digest_of(&self, event_type: Option<&str>) -> Option<&str> {
        self.digests.get(event_type?)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(is_strict: bool) -> TypeCatalog {
        TypeCatalog::new([("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)].into(), is_strict)
    }

    #[test]
    fn a_strict_catalog_refuses_other_types_and_never_the_servers_own() {
        for (event_type, is_refused) in
            [(Some("a"), false), (Some("b"), false), (Some("c"), true), (Some("waybill.x"), false), (None, false)]
        {
            assert_eq!(catalog(true).refuses(event_type), is_refused, "{event_type:?}");
            assert!(!catalog(false).refuses(event_type));
        }
    }

    #[test]
    fn only_a_catalog_with_types_or_rules_has_something_to_check() {
        assert!(TypeCatalog::default().accepts_all());
        assert!(!catalog(false).accepts_all());
        assert!(!TypeCatalog::new(BTreeMap::new(), true).accepts_all());
        assert_eq!(catalog(false).digest_of(Some("a")), Some("1"));
        assert_eq!((catalog(false).digest_of(Some("b")), catalog(false).digest_of(None)), (None, None));
    }
}
