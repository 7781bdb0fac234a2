//! A dotted path into a JSON value: `user.id`, `items.0.sku`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::raw_entries::RawEntries;
use super::{limits, text};

/// A path into a JSON value. A segment of digits is an index in a list and a key in an object. A key
/// that contains a dot cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JsonPath {
    segments: Vec<String>,
}

impl JsonPath {
    /// Parses a path. The error is the reason for refusal.
    pub fn parse(path: &str) -> Result<Self, String> {
        Self::parse_within(path, limits::PATH_CHARS, limits::PATH_SEGMENTS)
    }

    /// Parses a path of at most `max_chars` characters and `max_segments` segments.
    pub(crate) fn parse_within(path: &str, max_chars: usize, max_segments: usize) -> Result<Self, String> {
        text::check(path, max_chars)?;
        let segments: Vec<String> = path.split('.').map(str::to_owned).collect();
        if segments.iter().any(String::is_empty) {
            return Err("must not have an empty segment".into());
        }
        if segments.len() > max_segments {
            return Err(format!("must have at most {max_segments} segments"));
        }
        Ok(Self { segments })
    }

    /// Returns the value at the path, or `None` if there is none.
    pub fn find<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.segments.iter().try_fold(root, |value, segment| match value {
            Value::Object(fields) => fields.get(segment),
            Value::Array(items) => items.get(parse_index(segment)?),
            _ => None,
        })
    }

    /// Returns the value at the path in JSON that is not parsed, or `None` if there is none. Of a repeated name, the
    /// last value counts, as in [`JsonPath::find`].
    pub(crate) fn find_raw<'v>(&self, root: &'v RawValue) -> Option<&'v RawValue> {
        self.segments.iter().try_fold(root, |value, segment| match value.get().as_bytes().first() {
            Some(b'{') => {
                let entries: RawEntries<'v> = serde_json::from_str(value.get()).ok()?;
                entries.0.into_iter().rfind(|(name, _)| name == segment).map(|(_, value)| value)
            }
            Some(b'[') => {
                let items: Vec<&'v RawValue> = serde_json::from_str(value.get()).ok()?;
                items.get(parse_index(segment)?).copied()
            }
            _ => None,
        })
    }

    /// Returns the length of the path in bytes, which is about the number of bytes read to follow it.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.len() + 1).sum()
    }

    /// Returns the segments, outermost first. There is at least one.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }
}

/// Parses a segment as a list index. `01` and `+1` are no indexes: every index has one spelling.
pub(crate) fn parse_index(segment: &str) -> Option<usize> {
    let is_plain = segment.bytes().all(|byte| byte.is_ascii_digit()) && (segment == "0" || !segment.starts_with('0'));
    if is_plain { segment.parse().ok() } else { None }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.segments.join("."))
    }
}

impl Serialize for JsonPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JsonPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonPath::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn found(path: &str, value: &Value) -> Option<Value> {
        JsonPath::parse(path).unwrap().find(value).cloned()
    }

    #[test]
    fn a_path_leads_through_objects_and_lists() {
        let order = json!({"user": {"id": 7}, "items": [{"sku": "a"}, {"sku": "b"}]});
        assert_eq!(found("user.id", &order), Some(json!(7)));
        assert_eq!(found("items.1.sku", &order), Some(json!("b")));
        assert_eq!(found("items.2.sku", &order), None);
        assert_eq!(found("user.id.more", &order), None);
        assert_eq!(found("items.sku", &order), None);
    }

    #[test]
    fn digits_are_also_keys_and_an_index_has_one_spelling() {
        assert_eq!(found("0.01", &json!({"0": {"01": true}})), Some(json!(true)));
        assert_eq!(found("01", &json!([1, 2])), None);
        assert_eq!(found("+1", &json!([1, 2])), None);
        assert_eq!(found("99999999999999999999999", &json!([1, 2])), None);
    }

    #[test]
    fn a_path_finds_the_same_in_json_that_is_not_parsed() {
        let json = r#" {"a": {"b\u0062": [1, {"c": 1.50}]}, "a.": 1, "d": 1, "d": "last", "e": null} "#;
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        let find = |path: &str| JsonPath::parse(path).unwrap().find_raw(raw).map(RawValue::get);
        assert_eq!(find("a.bb.1.c"), Some("1.50"));
        assert_eq!(find("d"), Some("\"last\""));
        assert_eq!(find("e"), Some("null"));
        for nothing in ["a.bb.2", "a.bb.01", "d.x", "e.x", "f"] {
            assert_eq!(find(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_null_value_is_found() {
        assert_eq!(found("a", &json!({"a": null})), Some(Value::Null));
    }

    #[test]
    fn paths_have_limits() {
        for bad in ["", ".", "a.", ".a", "a..b", "a\0b"] {
            assert!(JsonPath::parse(bad).is_err(), "{bad:?}");
        }
        assert!(JsonPath::parse(&"x".repeat(255)).is_ok());
        assert!(JsonPath::parse(&"x".repeat(256)).is_err());
        assert!(JsonPath::parse(&["a"; 16].join(".")).is_ok());
        assert!(JsonPath::parse(&["a"; 17].join(".")).is_err());
    }

    proptest! {
        #[test]
        fn a_path_survives_serialisation(path in "\\PC{0,300}") {
            if let Ok(parsed) = JsonPath::parse(&path) {
                prop_assert_eq!(parsed.to_string(), path);
            }
        }
    }
}
