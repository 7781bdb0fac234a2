//! The tags that a key may publish to or work on.

use crate::domain::{limits, tags};

const ANY_SUFFIX: &str = ".*";

/// Patterns of tags: each is a tag, or ends in `.*` and stands for all tags that begin with what is before the
/// star. `billing.*` stands for `billing.invoice`, but not for `billing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagPatterns(Vec<String>);

impl TagPatterns {
    /// Checks a list of patterns. The error is the reason for refusal.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut checked: Vec<String> = Vec::new();
        for pattern in patterns {
            check(pattern)?;
            if !checked.iter().any(|known| known == pattern) {
                checked.push(pattern.to_owned());
            }
            if checked.len() > limits::TAG_PATTERNS {
                return Err(format!("must be at most {} patterns", limits::TAG_PATTERNS));
            }
        }
        if checked.is_empty() {
            return Err("must not be empty; leave it out to allow all tags".into());
        }
        Ok(TagPatterns(checked))
    }

    /// Wraps stored patterns, which were checked before they were stored. `None` means all tags.
    pub fn stored(patterns: Option<Vec<String>>) -> Option<Self> {
        patterns.map(TagPatterns)
    }

    /// Returns whether a tag fits any of the patterns.
    pub fn allow(&self, tag: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) if prefix.ends_with('.') => tag.starts_with(prefix),
            _ => tag == pattern,
        })
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Returns the patterns as a comma-separated list, the form used in SQL parameters. No pattern contains a comma.
    pub fn joined(&self) -> String {
        self.0.join(",")
    }
}

fn check(pattern: &str) -> Result<(), String> {
    let tag = pattern.strip_suffix(ANY_SUFFIX).unwrap_or(pattern);
    tags::check(tag)?;
    if tag.trim() != tag {
        return Err("holds a pattern with spaces at its ends".into());
    }
    if tag.contains('*') {
        return Err("holds a pattern with a * that is not at the end, behind a dot, as in billing.*".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_tag_or_a_prefix_before_a_dot() {
        let patterns = TagPatterns::parse(["billing.*", "mail"]).unwrap();
        for (tag, is_allowed) in [
            ("billing.invoice", true),
            ("billing.invoice.late", true),
            ("billing.", true),
            ("billing", false),
            ("billings.x", false),
            ("mail", true),
            ("mail.x", false),
            ("Mail", false),
            ("", false),
        ] {
            assert_eq!(patterns.allow(tag), is_allowed, "{tag}");
        }
    }

    #[test]
    fn patterns_have_limits() {
        let long = "x".repeat(limits::TAG_CHARS);
        assert!(TagPatterns::parse([&*long, &*format!("{long}.*")]).is_ok());
        for bad in ["", "*", ".*", "a*", "*.a", "a.*.b", " a", "a ", "a,b", "a\u{7}", &format!("{long}x")] {
            assert!(TagPatterns::parse([bad]).is_err(), "{bad:?}");
        }
        assert!(TagPatterns::parse([]).is_err());
        let many: Vec<String> = (0..=limits::TAG_PATTERNS).map(|n| n.to_string()).collect();
        assert!(TagPatterns::parse(many.iter().map(String::as_str)).is_err());
    }
}
