//! Redaction: the fields of payloads, results and progress reports that nobody is shown who reads them.
//!
//! An administrator gives a namespace patterns such as `payload.card.*`. What they match becomes `"[redacted]"` in
//! everything that is read; what a worker claims and what is pushed stays whole. The JSON is not parsed: [`walk`] goes
//! through its text once and copies everything else as it is, with the spelling of numbers, the order of fields,
//! repeated names and white space.

mod walk;

#[cfg(test)]
mod tests;

use super::json::RawJson;
use super::{limits, text};

/// What stands in the place of a value that is not shown.
pub(crate) const REDACTED: &str = "[redacted]";

/// The fields of an event that patterns may be about.
const FIELDS: [&str; 3] = ["payload", "result", "progress"];

/// The part of a pattern that stands for any key, and for any element of a list.
const ANY: &str = "*";

/// What is redacted in a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Redaction {
    /// The parts of each pattern. There are at most [`limits::REDACT_PATTERNS`], each with at least one part.
    patterns: Vec<Vec<String>>,
}

impl Redaction {
    /// Checks a list of patterns. The error is the reason for refusal.
    pub(crate) fn parse(patterns: &[String]) -> Result<Self, String> {
        if patterns.len() > limits::REDACT_PATTERNS {
            return Err(format!("must be at most {} patterns", limits::REDACT_PATTERNS));
        }
        Ok(Redaction { patterns: patterns.iter().map(|pattern| parse(pattern)).collect::<Result<_, _>>()? })
    }

    /// Returns what stored patterns redact: everything if this version cannot read them.
    pub(crate) fn stored(patterns: &[String]) -> Self {
        Self::parse(patterns).unwrap_or_else(|_| Self::everything())
    }

    /// Returns what redacts all payloads, results and progress reports as a whole.
    pub(crate) fn everything() -> Self {
        Redaction { patterns: FIELDS.iter().map(|field| vec![(*field).to_owned()]).collect() }
    }

    /// Returns a field of an event (`payload`, `result` or `progress`) without what is redacted in it, or `None` if
    /// that is nothing.
    pub(crate) fn redact(&self, field: &str, json: &RawJson) -> Option<RawJson> {
        let begins = |parts: &Vec<String>| parts.first().is_some_and(|part| part == field);
        walk::redact(&self.patterns, self.those(begins), 1, json.as_str()).map(RawJson::from_column)
    }

    /// Returns an object that has the fields of an event, without what is redacted in them, or `None` if that is
    /// nothing.
    pub(crate) fn redact_event(&self, object: &RawJson) -> Option<RawJson> {
        walk::redact(&self.patterns, self.those(|_| true), 0, object.as_str()).map(RawJson::from_column)
    }

    /// Returns whether the value at a dotted path, such as `payload.card.number`, must not be learned: it is redacted,
    /// or is a part of what is, or has a part that is. For filters, which would tell whether a guess is right.
    pub(crate) fn is_redacted(&self, path: &str) -> bool {
        self.is_redacted_at(path.split('.'))
    }

    /// The same, for the parts of a path.
    pub(crate) fn is_redacted_at<'a>(&self, path: impl Iterator<Item = &'a str> + Clone) -> bool {
        let meets = |parts: &Vec<String>| parts.iter().zip(path.clone()).all(|(part, key)| part == ANY || part == key);
        self.patterns.iter().any(meets)
    }

    /// Returns the set of the patterns for which `is_meant` is true, as bits.
    fn those(&self, is_meant: impl Fn(&Vec<String>) -> bool) -> u64 {
        let bits = self.patterns.iter().enumerate().filter(|(_, parts)| is_meant(parts)).map(|(index, _)| 1 << index);
        bits.fold(0, |all, bit: u64| all | bit)
    }
}

/// Returns the parts of a pattern.
fn parse(pattern: &str) -> Result<Vec<String>, String> {
    text::check(pattern, limits::PATH_CHARS).map_err(|reason| format!("holds a pattern that {reason}"))?;
    let parts: Vec<&str> = pattern.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err("holds a pattern with an empty part".into());
    }
    if parts.len() > limits::PATH_SEGMENTS {
        return Err(format!("holds a pattern with more than {} parts", limits::PATH_SEGMENTS));
    }
    if !FIELDS.contains(&parts[0]) {
        return Err(format!("holds a pattern that does not begin with one of {}", FIELDS.join(", ")));
    }
    if parts.iter().any(|part| part.contains(ANY) && *part != ANY) {
        return Err("holds a pattern with a * that is not a whole part, as in payload.card.*".into());
    }
    Ok(parts.into_iter().map(str::to_owned).collect())
}
