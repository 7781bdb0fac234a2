//! Tags of events, by which workers claim them and subscriptions select them.

use super::{limits, text};

/// The tags of an event, a claim or a subscription: trimmed, without duplicates, in the given order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<String>);

impl Tags {
    /// Parses a comma-separated list: `email, priority-high`. Empty text means no tags.
    pub fn from_comma_separated(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Self::from_words(text.split(','))
    }

    /// Parses a list of tags.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut tags: Vec<String> = Vec::new();
        for word in words {
            let tag = word.trim();
            check(tag)?;
            if !tags.iter().any(|known| known == tag) {
                tags.push(tag.to_owned());
            }
            if tags.len() > limits::TAGS {
                return Err(format!("must be at most {} tags", limits::TAGS));
            }
        }
        Ok(Self(tags))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Returns the tags as a comma-separated list, the form used in responses and SQL parameters.
    pub fn joined(&self) -> String {
        self.0.join(",")
    }
}

impl From<Vec<String>> for Tags {
    /// Wraps stored tags, which were checked before they were stored.
    fn from(stored: Vec<String>) -> Self {
        Self(stored)
    }
}

/// Checks one tag. The error is the reason for refusal.
pub(crate) fn check(tag: &str) -> Result<(), String> {
    text::check(tag, limits::TAG_CHARS).map_err(|reason| format!("holds a tag that {reason}"))?;
    if tag.contains(',') {
        return Err("holds a tag with a comma in it".into());
    }
    if tag.chars().any(char::is_control) {
        return Err("holds a tag with a control character in it".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_trimmed_and_deduplicated_in_order() {
        let tags = Tags::from_comma_separated(" b, a ,b,c").unwrap();
        assert_eq!(tags.joined(), "b,a,c");
    }

    #[test]
    fn an_empty_tag_is_refused() {
        assert!(Tags::from_comma_separated("a,,b").is_err());
        assert!(Tags::from_comma_separated("a,").is_err());
        assert!(Tags::from_comma_separated("").unwrap().is_empty());
    }

    #[test]
    fn tags_have_limits() {
        assert!(Tags::from_words([&*"x".repeat(100)]).is_ok());
        assert!(Tags::from_words([&*"x".repeat(101)]).is_err());
        assert!(Tags::from_words(["a,b"]).is_err());
        assert!(Tags::from_words(["a\u{7}b"]).is_err());
        let many: Vec<String> = (0..33).map(|n| n.to_string()).collect();
        assert!(Tags::from_words(many.iter().map(String::as_str)).is_err());
    }
}
