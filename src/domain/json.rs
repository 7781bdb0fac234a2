//! JSON that passes through: kept as the bytes in which it arrived.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::limits;

/// A JSON value, verbatim: key order, number spelling and inner whitespace included.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Keeps a copy of a value that was found inside a larger document.
    pub fn from_raw(value: &RawValue) -> Self {
        Self(value.to_owned())
    }

    /// Takes text from a `json` column, which holds nothing but JSON: PostgreSQL has checked
    /// it, and so did we before. It may be large and is only passed on, so it is not parsed
    /// once more.
    #[expect(unsafe_code, reason = "the caller vouches for what a second parse would find out")]
    pub fn from_column(text: String) -> Self {
        // SAFETY: one well-formed JSON value, without whitespace around it: `trim` copies only
        // where somebody has put some there by hand.
        let text = if text.trim().len() == text.len() { text } else { text.trim().to_owned() };
        Self(unsafe { RawValue::from_string_unchecked(text) })
    }

    /// Serialises a value of our own.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The bytes.
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

/// Whether `json` nests deeper than [`limits::JSON_DEPTH`]. A parser further down the road
/// may recurse, and must not be brought down by `[[[[…`.
pub fn is_too_deep(json: &str) -> bool {
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
                if depth > limits::JSON_DEPTH {
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
