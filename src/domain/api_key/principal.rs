//! Who makes a call, and what they may do.

use std::sync::Arc;

use super::{KeyScope, KeyScopes, TagPatterns};
use crate::domain::ids::{KeyId, NamespaceId};
use crate::domain::publish_limits::PublishRate;

/// A caller: the holder of a key, or anybody on a server without keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// `None` on a server without keys.
    pub key_id: Option<KeyId>,
    /// The name of the key, which is the actor in logs and records.
    pub name: Option<Arc<str>>,
    pub namespace: NamespaceId,
    pub scopes: KeyScopes,
    /// The tags that it may publish to and work on. `None` means all.
    pub tag_patterns: Option<Arc<TagPatterns>>,
    /// How much it may publish. `None` means as much as its namespace.
    pub publish_rate: Option<PublishRate>,
}

/// Why a call about some tags is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagRefusal {
    /// The key does not allow this tag.
    Tag(String),
    /// The event has no tag, and the key allows only some tags.
    NoTag,
    /// The event has no tag that the key allows. The tags are not named: they are not the caller's to see.
    NoneOfEvent,
}

impl Principal {
    /// Returns the caller of a server without keys: an administrator without a name.
    pub fn anonymous(namespace: NamespaceId) -> Self {
        Principal {
            key_id: None,
            name: None,
            namespace,
            scopes: KeyScopes::of([KeyScope::Admin]),
            tag_patterns: None,
            publish_rate: None,
        }
    }

    /// Returns whether the caller may see payloads, results, progress and error texts.
    pub fn may_reveal(&self) -> bool {
        self.scopes.allow(KeyScope::Reveal)
    }

    /// Checks that the caller may publish an event with these tags. An event goes into the queues of all its tags,
    /// so each must be allowed. One without tags goes only to subscriptions, which no pattern describes.
    pub fn check_publish(&self, tags: &[String]) -> Result<(), TagRefusal> {
        match &self.tag_patterns {
            Some(_) if tags.is_empty() => Err(TagRefusal::NoTag),
            _ => self.check_claim(tags),
        }
    }

    /// Checks that the caller may claim from the queues of these tags.
    pub fn check_claim(&self, tags: &[String]) -> Result<(), TagRefusal> {
        let Some(patterns) = &self.tag_patterns else { return Ok(()) };
        match tags.iter().find(|tag| !patterns.allow(tag)) {
            Some(tag) => Err(TagRefusal::Tag(tag.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited() -> Principal {
        let patterns = TagPatterns::parse(["billing.*"]).unwrap();
        Principal { tag_patterns: Some(Arc::new(patterns)), ..Principal::anonymous(NamespaceId::DEFAULT) }
    }

    #[test]
    fn every_tag_must_be_allowed() {
        let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        assert_eq!(limited().check_publish(&tags(&["billing.a", "billing.b"])), Ok(()));
        let refused = Err(TagRefusal::Tag("mail".into()));
        assert_eq!(limited().check_publish(&tags(&["billing.a", "mail"])), refused);
        assert_eq!(limited().check_claim(&tags(&["mail", "billing.a"])), refused);
    }

    #[test]
    fn an_event_without_tags_needs_a_key_without_patterns() {
        assert_eq!(limited().check_publish(&[]), Err(TagRefusal::NoTag));
        assert_eq!(Principal::anonymous(NamespaceId::DEFAULT).check_publish(&[]), Ok(()));
    }
}
