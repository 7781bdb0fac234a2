//! Tags: the words by which workers and events find each other.

use super::{limits, text};

/// An event's tags, or those a worker asks for: trimmed, each once, in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<String>);

impl Tags {
    /// Reads the comma form: `email, priority-high`. Empty text means no tags.
    pub fn from_comma_separated(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Self::from_words(text.split(','))
    }

    /// Reads the list form.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tags, in order.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// The comma form, in which tags are answered and stored statements are fed.
    pub fn joined(&self) -> String {
        self.0.join(",")
    }
}

impl From<Vec<String>> for Tags {
    /// Tags as they were stored, checked long ago.
    fn from(stored: Vec<String>) -> Self {
        Self(stored)
    }
}

fn check(tag: &str) -> Result<(), String> {
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
    fn tags_are_trimmed_and_kept_once_in_order() {
        let tags = Tags::from_comma_separated(" b, a ,b,c").unwrap();
        assert_eq!(tags.joined(), "b,a,c");
    }

    #[test]
    fn a_tag_between_two_commas_must_not_be_empty() {
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
