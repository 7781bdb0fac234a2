//! Rendering of events in the CloudEvents 1.0 format.

use serde::Serialize;
use serde_json::value::RawValue;

use super::envelope::{format_time, verbatim};
use super::{JSON, Rendered, TransformInput};

const VERSION: &str = "1.0";
const STRUCTURED_JSON: &str = "application/cloudevents+json";
/// The type of an event that has none, because CloudEvents requires one.
const UNTYPED: &str = "waybill.event";

#[derive(Serialize)]
struct Structured<'a> {
    specversion: &'a str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitionkey: Option<&'a str>,
    datacontenttype: &'a str,
    data: &'a RawValue,
}

/// Renders structured mode: everything is in the body, and the payload keeps its bytes.
pub(super) fn render_structured(input: &TransformInput<'_>, payload: &str) -> Result<Rendered, String> {
    let event = Structured {
        specversion: VERSION,
        id: input.webhook_id,
        source: input.source,
        event_type: input.event_type.unwrap_or(UNTYPED),
        time: format_time(input.created_at),
        partitionkey: input.ordering_key,
        datacontenttype: JSON,
        data: verbatim(payload)?,
    };
    Rendered::json(&event, STRUCTURED_JSON)
}

/// Renders binary mode: the payload is in the body, the other attributes in headers. The
/// `Content-Type` header stands for `datacontenttype`, so there is no `ce-datacontenttype`.
pub(super) fn render_binary(input: &TransformInput<'_>, payload: &str) -> Rendered {
    let time = format_time(input.created_at);
    let attributes = [
        ("ce-specversion", Some(VERSION)),
        ("ce-id", Some(input.webhook_id)),
        ("ce-source", Some(input.source)),
        ("ce-type", Some(input.event_type.unwrap_or(UNTYPED))),
        ("ce-time", Some(&*time)),
        ("ce-partitionkey", input.ordering_key),
    ];
    let header = |(name, value): (&str, Option<&str>)| Some((name.to_owned(), percent_encoded(value?)));
    let headers = attributes.into_iter().filter_map(header).collect();
    Rendered { headers, ..Rendered::new(payload.to_owned(), JSON) }
}

/// Percent-encodes a header value as the HTTP binding (3.1.3.2) requires: everything except
/// printable ASCII, and also the space, the double quote and the percent sign.
fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'"' && byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_are_encoded_as_in_the_specification() {
        assert_eq!(percent_encoded("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(percent_encoded("a\"b%c\u{7f}\r\n~!"), "a%22b%25c%7F%0D%0A~!");
    }

    proptest! {
        #[test]
        fn no_value_can_inject_a_header(value in any::<String>()) {
            prop_assert!(percent_encoded(&value).bytes().all(|byte| matches!(byte, b'!'..=b'~')));
        }
    }
}
