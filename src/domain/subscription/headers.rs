//! The headers that a subscription adds to its requests.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::domain::invalid::Invalid;
use crate::domain::limits;

/// Header names that a subscriber must not set: headers of the connection and of the body, and
/// headers that the server sets itself.
const RESERVED: [&str; 14] = [
    "connection",
    "content-length",
    "content-type",
    "date",
    "expect",
    "host",
    "keep-alive",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Prefixes of header names that a subscriber must not set.
const RESERVED_PREFIXES: [&str; 4] = ["ce-", "proxy-", "waybill-", "webhook-"];

/// Replaces the headers in the fields of a subscription with their names, for responses: the values may be
/// secrets.
pub(crate) fn hide_values(fields: &mut Map<String, Value>) {
    let headers = fields.remove("headers");
    let names: Vec<&String> = headers.as_ref().and_then(Value::as_object).into_iter().flat_map(Map::keys).collect();
    fields.insert("header_names".into(), json!(names));
}

/// Merges changed headers into the present ones. A name matches in any case. A value adds or replaces a header,
/// and `null` removes one.
pub(crate) fn merge(present: &mut Map<String, Value>, changes: Map<String, Value>) {
    let is_changed = |name: &String| changes.keys().any(|changed| changed.eq_ignore_ascii_case(name));
    present.retain(|name, _| !is_changed(name));
    present.extend(changes.into_iter().filter(|(_, value)| !value.is_null()));
}

/// Parses headers. The fields named in errors are relative to the headers.
pub(crate) fn parse(pairs: &Map<String, Value>) -> Result<BTreeMap<String, String>, Vec<Invalid>> {
    if pairs.len() > limits::HEADERS {
        return Err(vec![Invalid::new("", format!("must be at most {} pairs", limits::HEADERS))]);
    }
    let mut headers = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, value) in pairs {
        let is_known = |known: &String| known.eq_ignore_ascii_case(name);
        let checked = check_name(name).and_then(|()| check_value(value));
        match checked {
            Ok(_) if headers.keys().any(is_known) => errors.push(invalid_header(name, "is given twice".into())),
            Ok(value) => {
                headers.insert(name.clone(), value.to_owned());
            }
            Err(reason) => errors.push(invalid_header(name, reason)),
        }
    }
    if errors.is_empty() { Ok(headers) } else { Err(errors) }
}

fn invalid_header(name: &str, reason: String) -> Invalid {
    let shown: String = name.chars().take(40).collect();
    Invalid::new(shown, reason)
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > limits::HEADER_NAME_CHARS || !name.bytes().all(is_token) {
        let reason = format!("must be a header name of 1 to {} characters", limits::HEADER_NAME_CHARS);
        return Err(reason);
    }
    let lower = name.to_ascii_lowercase();
    let is_reserved =
        RESERVED.contains(&lower.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    if is_reserved { Err("is a header that cannot be set".into()) } else { Ok(()) }
}

fn check_value(value: &Value) -> Result<&str, String> {
    let is_fine = |text: &&str| text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let text = value.as_str().filter(is_fine).ok_or("must be a string of visible ASCII characters")?;
    if text.len() > limits::HEADER_VALUE_CHARS {
        return Err(format!("must be at most {} characters long", limits::HEADER_VALUE_CHARS));
    }
    Ok(text)
}

/// Returns whether RFC 9110 allows a byte in a header name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<BTreeMap<String, String>, Vec<String>> {
        let fields = |errors: Vec<Invalid>| errors.into_iter().map(|error| error.field).collect();
        parse(value.as_object().unwrap()).map_err(fields)
    }

    #[test]
    fn names_keep_their_spelling_and_values_their_spaces() {
        let headers = read(json!({"Authorization": "Bearer x", "X-Empty": "", "x_y": "a\tb"})).unwrap();
        assert_eq!(headers["Authorization"], "Bearer x");
        assert_eq!(headers.len(), 3);
    }

    #[test]
    fn reserved_names_are_refused_in_any_case() {
        for name in ["Host", "content-TYPE", "Webhook-Id", "ce-id", "Waybill-X", "Proxy-Authorization", "traceparent"] {
            assert_eq!(read(json!({ name: "x" })).unwrap_err(), [name]);
        }
        assert!(read(json!({"cell": "x", "hosts": "x"})).is_ok());
    }

    #[test]
    fn header_injection_is_refused() {
        for (name, value) in [
            ("x", "a\r\nHost: b"),
            ("x", "a\nb"),
            ("x", "a\0"),
            ("x", "ü"),
            ("a b", "x"),
            ("", "x"),
            ("a:", "x"),
            ("ä", "x"),
        ] {
            assert!(read(json!({ name: value })).is_err(), "{name:?}: {value:?}");
        }
        assert!(read(json!({"x": 5})).is_err());
    }

    fn merged(mut present: Value, changes: Value) -> Value {
        merge(present.as_object_mut().unwrap(), changes.as_object().cloned().unwrap());
        present
    }

    #[test]
    fn changes_are_merged_by_name_in_any_case() {
        let present = json!({"Authorization": "a", "X-Other": "b"});
        assert_eq!(merged(present.clone(), json!({})), present);
        assert_eq!(merged(present.clone(), json!({"X-New": "c", "X-Unknown": null}))["X-New"], "c");
        assert_eq!(merged(present.clone(), json!({"AUTHORIZATION": null})), json!({"X-Other": "b"}));
        let replaced = merged(present, json!({"authorization": "c"}));
        assert_eq!(replaced, json!({"authorization": "c", "X-Other": "b"}));
    }

    #[test]
    fn a_header_that_is_changed_under_two_spellings_is_refused() {
        let merged = merged(json!({"X-A": "1"}), json!({"X-A": "2", "x-a": "3"}));
        assert_eq!(read(merged).unwrap_err(), ["x-a"]);
    }

    #[test]
    fn only_the_names_of_headers_are_left() {
        let mut fields = json!({"url": "http://a", "headers": {"X-B": "secret", "Authorization": "secret"}});
        hide_values(fields.as_object_mut().unwrap());
        assert_eq!(fields, json!({"url": "http://a", "header_names": ["Authorization", "X-B"]}));
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let errors = read(json!({"Host": "x", "X-A": "1", "X-B": 2, "x-a": "2"})).unwrap_err();
        assert_eq!(errors, ["Host", "X-B", "x-a"]);
    }

    #[test]
    fn headers_have_limits() {
        let many = |count: usize| (0..count).map(|n| (format!("x-{n}"), json!("v"))).collect::<Map<_, _>>();
        assert!(parse(&many(32)).is_ok());
        assert!(parse(&many(33)).is_err());
        assert!(read(json!({"x": "v".repeat(2000)})).is_ok());
        assert!(read(json!({"x": "v".repeat(2001)})).is_err());
    }
}
