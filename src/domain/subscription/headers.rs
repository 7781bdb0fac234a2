//! The headers that a subscription adds to its requests.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::domain::encryption::StoredText;
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

/// Returns the headers of stored settings. They were checked before they were stored.
pub(super) fn of_stored(headers: Option<&Value>) -> BTreeMap<String, StoredText> {
    let pairs = headers.and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(name, value)| (name.clone(), StoredText::of_json(value))).collect()
}

/// Parses headers as a client writes them. The fields named in errors are relative to the headers.
pub(crate) fn parse(pairs: &Map<String, Value>) -> Result<BTreeMap<String, StoredText>, Vec<Invalid>> {
    check_count(pairs.len()).map_err(|error| vec![error])?;
    let mut headers = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, value) in pairs {
        let is_known = |known: &String| known.eq_ignore_ascii_case(name);
        let checked = check_name(name).and_then(|()| check_value(value));
        match checked {
            Ok(_) if headers.keys().any(is_known) => errors.push(invalid_header(name, "is given twice".into())),
            Ok(value) => {
                headers.insert(name.clone(), StoredText::Plain(value.to_owned()));
            }
            Err(reason) => errors.push(invalid_header(name, reason)),
        }
    }
    if errors.is_empty() { Ok(headers) } else { Err(errors) }
}

/// Returns an error about the whole of the headers if there are too many.
pub(super) fn check_count(count: usize) -> Result<(), Invalid> {
    let too_many = || Invalid::new("", format!("must be at most {} pairs", limits::HEADERS));
    if count > limits::HEADERS { Err(too_many()) } else { Ok(()) }
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

    fn read(value: Value) -> Result<BTreeMap<String, StoredText>, Vec<String>> {
        let fields = |errors: Vec<Invalid>| errors.into_iter().map(|error| error.field).collect();
        parse(value.as_object().unwrap()).map_err(fields)
    }

    #[test]
    fn names_keep_their_spelling_and_values_their_spaces() {
        let headers = read(json!({"Authorization": "Bearer x", "X-Empty": "", "x_y": "a\tb"})).unwrap();
        assert_eq!(headers["Authorization"], StoredText::Plain("Bearer x".into()));
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
        assert!(read(json!({"x": {"encrypted": "enc:v1:a:AAAA"}})).is_err());
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
