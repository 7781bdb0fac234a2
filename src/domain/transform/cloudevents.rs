//! Events by CloudEvents 1.0, for receivers that know them.

use serde::Serialize;
use serde_json::value::RawValue;

use super::envelope::{verbatim, written};
use super::{JSON, Rendered, TransformInput};

const VERSION: &str = "1.0";
const STRUCTURED_JSON: &str = "application/cloudevents+json";
/// The type of an event that has none: CloudEvents insists on one.
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

/// All in the body; the payload keeps its bytes.
pub(super) fn render_structured(parcel: &TransformInput<'_>, payload: &str) -> Result<Rendered, String> {
    let event = Structured {
        specversion: VERSION,
        id: parcel.webhook_id,
        source: parcel.source,
        event_type: parcel.event_type.unwrap_or(UNTYPED),
        time: written(parcel.time),
        partitionkey: parcel.ordering_key,
        datacontenttype: JSON,
        data: verbatim(payload)?,
    };
    Rendered::json(&event, STRUCTURED_JSON)
}

/// The payload in the body and the rest in headers. The content type is that of the payload,
/// and no header repeats it.
pub(super) fn render_binary(parcel: &TransformInput<'_>, payload: &str) -> Rendered {
    let time = written(parcel.time);
    let attributes = [
        ("ce-specversion", Some(VERSION)),
        ("ce-id", Some(parcel.webhook_id)),
        ("ce-source", Some(parcel.source)),
        ("ce-type", Some(parcel.event_type.unwrap_or(UNTYPED))),
        ("ce-time", Some(&*time)),
        ("ce-partitionkey", parcel.ordering_key),
    ];
    let header = |(name, value): (&str, Option<&str>)| Some((name.to_owned(), percent_encoded(value?)));
    let headers = attributes.into_iter().filter_map(header).collect();
    Rendered { headers, ..Rendered::new(payload.to_owned(), JSON) }
}

/// What the HTTP binding (3.1.3.2) lets stand: printable ASCII but the space, the quote and
/// the percent sign.
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
    fn headers_are_encoded_as_the_specification_shows() {
        assert_eq!(percent_encoded("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(percent_encoded("a\"b%c\u{7f}\r\n~!"), "a%22b%25c%7F%0D%0A~!");
    }

    proptest! {
        #[test]
        fn no_value_breaks_out_of_its_header(value in any::<String>()) {
            prop_assert!(percent_encoded(&value).bytes().all(|byte| matches!(byte, b'!'..=b'~')));
        }
    }
}
