//! Conditions on payloads, as people who search for events write them: a path, and the text of the value there.
//!
//! The text `17` stands for the number 17, however it is spelled, and for the string `"17"`: a filter in a URL has no
//! types. Payloads are not parsed into a tree, so no digit of a number is lost, and what a parser could not represent
//! (`\ud800`, 1,000 digits) is just another value. See `docs/decisions/0039-search-without-an-index.md`.

mod number;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::json::RawJson;
use super::path::JsonPath;
use number::same_number;

/// Conditions on a payload: the text of the value at each path.
pub type PayloadConditions = BTreeMap<JsonPath, String>;

/// Returns whether a payload has each of the `wanted` values and none of the `excluded` ones. An event without a
/// payload has no values.
pub(crate) fn is_match(payload: Option<&RawJson>, wanted: &PayloadConditions, excluded: &PayloadConditions) -> bool {
    let has = |(path, text): (&JsonPath, &String)| {
        let value = payload.and_then(|payload| path.find_raw(payload.as_raw()));
        value.is_some_and(|value| has_text(value, text))
    };
    wanted.iter().all(has) && !excluded.iter().any(has)
}

/// Returns whether a value is the string `text`, or the number, `true`, `false` or `null` that `text` spells. Objects
/// and lists have no text.
fn has_text(value: &RawValue, text: &str) -> bool {
    let json = value.get();
    match json.as_bytes().first() {
        Some(b'"') => string_of(json).is_some_and(|string| string == text),
        Some(b't' | b'f' | b'n') => json == text,
        Some(b'-' | b'0'..=b'9') => same_number(json, text),
        _ => false,
    }
}

/// Returns the text of a JSON string, or `None` if it is not valid Unicode.
fn string_of(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.get(1..json.len() - 1)?;
    if inner.contains('\\') { serde_json::from_str(json).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(payload: &str, path: &str, text: &str) -> bool {
        let payload = RawJson::from_column(payload.to_owned());
        let conditions = PayloadConditions::from([(JsonPath::parse(path).unwrap(), text.to_owned())]);
        let is_wanted = is_match(Some(&payload), &conditions, &PayloadConditions::new());
        assert_eq!(is_match(Some(&payload), &PayloadConditions::new(), &conditions), !is_wanted);
        is_wanted
    }

    #[test]
    fn a_text_stands_for_a_string_a_number_a_boolean_and_null() {
        let payload = r#"{"s": "17", "n": 17, "f": 17.0, "t": true, "no": null, "e": "", "esc": "a\u0062\n"}"#;
        for path in ["s", "n", "f"] {
            assert!(matches(payload, path, "17"), "{path}");
        }
        assert!(matches(payload, "t", "true") && matches(payload, "no", "null") && matches(payload, "e", ""));
        assert!(matches(payload, "esc", "ab\n"));
        assert!(matches(payload, "n", "1.7e1") && !matches(payload, "s", "17.0") && !matches(payload, "n", "018"));
        assert!(!matches(payload, "t", "TRUE") && !matches(payload, "missing", "null"));
    }

    #[test]
    fn paths_lead_into_objects_and_lists_and_never_match_them() {
        let payload = r#"{"order": {"id": 17, "items": [{"sku": "a"}, {"sku": "b"}]}}"#;
        assert!(matches(payload, "order.id", "17") && matches(payload, "order.items.1.sku", "b"));
        for text in ["", "{}", "[]", "null", r#"{"sku": "a"}"#] {
            assert!(!matches(payload, "order.items.0", text) && !matches(payload, "order.items", text), "{text}");
        }
        // As an index, -1 would reach elements whose path is redacted.
        assert!(!matches(payload, "order.items.-1.sku", "b") && !matches(payload, "order.items.01.sku", "b"));
    }

    #[test]
    fn values_that_no_text_can_be_are_no_matches_and_no_errors() {
        let deep = format!("{{\"deep\": {}1{}, \"a\": 1}}", "[".repeat(128), "]".repeat(128));
        assert!(matches(&deep, "a", "1") && !matches(&deep, "deep.0.0", "1"));
        let odd = r#"{"nul": "a\u0000b", "half": "\ud800", "a\u0000": 1, "a": 2, "a": 3}"#;
        assert!(!matches(odd, "nul", "a") && !matches(odd, "half", "\u{fffd}") && !matches(odd, "half", ""));
        assert!(matches(odd, "a", "3") && !matches(odd, "a", "2"), "of a repeated name the last counts");
    }

    #[test]
    fn an_event_without_a_payload_has_no_values() {
        let conditions = PayloadConditions::from([(JsonPath::parse("a").unwrap(), "null".to_owned())]);
        assert!(!is_match(None, &conditions, &PayloadConditions::new()));
        assert!(is_match(None, &PayloadConditions::new(), &conditions));
    }
}
