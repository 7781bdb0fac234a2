//! JSON that is stored and sent verbatim.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::limits;

/// A JSON value, verbatim, including key order, number spelling and inner whitespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
#[expect(clippy::unsafe_derive_deserialize, reason = "what is deserialised is parsed, and so is JSON")]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Copies a value out of a larger document.
    pub fn from_raw(value: &RawValue) -> Self {
        Self(value.to_owned())
    }

    /// Wraps text from a `json` column. PostgreSQL guarantees that it is JSON, and the server
    /// checked it before it was stored. The text may be large and is only passed on, so it is not
    /// parsed again.
    #[expect(unsafe_code, reason = "the caller guarantees that the text is JSON")]
    pub fn from_column(text: String) -> Self {
        // Only a row that was written by hand has whitespace around it, so the text is rarely copied.
        let text = if text.trim().len() == text.len() { text } else { text.trim().to_owned() };
        // SAFETY: the text is one well-formed JSON value without whitespace around it.
        Self(unsafe { RawValue::from_string_unchecked(text) })
    }

    /// Serialises a value.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Returns the value as a slice of a document.
    pub(crate) fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}

/// Returns whether `json` nests deeper than [`limits::JSON_DEPTH`]. A recursive parser, here or at a
/// receiver, could overflow its stack on `[[[[…`.
pub(crate) fn is_too_deep(json: &str) -> bool {
    nests_deeper_than(json, limits::JSON_DEPTH)
}

/// Returns whether `json` nests deeper than `levels`.
pub(crate) fn nests_deeper_than(json: &str, levels: usize) -> bool {
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    for byte in json.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > levels {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!is_too_deep(&nested(128)));
        assert!(is_too_deep(&nested(129)));
        assert!(!is_too_deep(&format!("\"{}\"", "[".repeat(500))));
        assert!(!is_too_deep(r#"{"a\"[":"[["}"#));
    }
}
