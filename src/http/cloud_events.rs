//! CloudEvents 1.0 as events: structured, binary and batched (the HTTP protocol binding).
//!
//! `source` and `id` together are the idempotency key, `type` is the event type and the title, `partitionkey` the
//! ordering key, `traceparent` the trace, and an extension `tags` has the tags by which workers claim the event. All
//! other attributes become labels, `time` and `source` too, except `tracestate`, which says nothing about the event.
//! `data` is the payload, verbatim.

use std::collections::BTreeMap;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderName;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::body::media_type;
use super::new_event::{Publisher, check_event, is_traceparent};
use crate::domain::event::NewEvent;
use crate::domain::idempotency::{IdempotencyKey, KeyOrigin};
use crate::domain::input::{InputError, RawFields, read_items};
use crate::domain::json::{RawJson, is_too_deep};
use crate::domain::limits;
use crate::domain::tags::Tags;
use crate::error::Error;

/// How a request carries CloudEvents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One, as a JSON object.
    Structured,
    /// Several, as a JSON array.
    Batched,
    /// One, whose attributes are headers and whose data is the body.
    Binary,
}

/// The header that a CloudEvent in the binary mode always has.
static SPEC_VERSION: HeaderName = HeaderName::from_static("ce-specversion");

/// The prefix of the headers that are attributes in the binary mode.
const HEADER_PREFIX: &str = "ce-";

/// The label that says that the payload is a text that stands for bytes.
const ENCODING_LABEL: &str = "dataencoding";

/// Returns how a request carries CloudEvents, or `None` if it carries none.
pub(crate) fn mode_of(request: &HttpRequest) -> Option<Mode> {
    let media_type = media_type(request);
    if media_type.eq_ignore_ascii_case("application/cloudevents+json") {
        return Some(Mode::Structured);
    }
    if media_type.eq_ignore_ascii_case("application/cloudevents-batch+json") {
        return Some(Mode::Batched);
    }
    request.headers().contains_key(&SPEC_VERSION).then_some(Mode::Binary)
}

/// Reads a CloudEvent that is a JSON object.
pub(crate) fn read_structured(body: &[u8], publisher: &Publisher) -> Result<NewEvent, Error> {
    let mut fields = RawFields::of_body(body)?;
    let event = read_object(&mut fields, publisher);
    Ok(fields.finish_with(event)?)
}

/// Reads CloudEvents that are the elements of a JSON array.
pub(crate) fn read_batch(body: &[u8], publisher: &Publisher) -> Result<Vec<NewEvent>, Error> {
    let items: Vec<&RawValue> =
        serde_json::from_slice(body).map_err(|error| Error::MalformedJson(error.to_string()))?;
    if items.is_empty() || items.len() > limits::BATCH {
        return Err(Error::invalid("body", format!("must have between 1 and {} events", limits::BATCH)));
    }
    Ok(read_items("events", &items, |fields| read_object(fields, publisher))?)
}

fn read_object(fields: &mut RawFields<'_>, publisher: &Publisher) -> Option<NewEvent> {
    let data = fields.json("data", limits::PAYLOAD_BYTES);
    let encoded = fields.parse_text("data_base64", |text| {
        BASE64_STANDARD.decode(text).map(|_| text.to_owned()).map_err(|_| "must be base64".into())
    });
    if data.is_some() && encoded.is_some() {
        fields.refuse("data_base64", "must not be given together with data");
    }
    let is_encoded = encoded.is_some();
    let data = data.or_else(|| encoded.and_then(|text| RawJson::of(&text).ok()));
    if data.as_ref().is_some_and(is_too_large) {
        fields.refuse_all(InputError::TooLarge { field: "data_base64".into(), limit: limits::PAYLOAD_BYTES });
    }
    let mut attributes = BTreeMap::new();
    for (name, value) in fields.rest() {
        match value {
            Value::Null => {}
            Value::String(text) => _ = attributes.insert(name, text),
            Value::Number(number) => _ = attributes.insert(name, number.to_string()),
            Value::Bool(is_true) => _ = attributes.insert(name, is_true.to_string()),
            Value::Array(_) | Value::Object(_) => fields.refuse(name, "must be a string, a number or a boolean"),
        }
    }
    let event = event_of(fields, attributes, publisher);
    event.map(|event| with_data(event, data, is_encoded))
}

/// Reads a CloudEvent whose attributes are headers.
pub(crate) fn read_binary(request: &HttpRequest, body: &[u8], publisher: &Publisher) -> Result<NewEvent, Error> {
    let mut fields = RawFields::new([]);
    let mut attributes = BTreeMap::new();
    for (name, value) in request.headers() {
        let Some(attribute) = name.as_str().strip_prefix(HEADER_PREFIX) else { continue };
        // Some clients do not encode. What is not percent-encoded UTF-8, such as `100% wool`, is taken as it is.
        match value.to_str().ok().map(|value| percent_decoded(value).unwrap_or_else(|| value.to_owned())) {
            Some(text) if !attributes.contains_key(attribute) => _ = attributes.insert(attribute.to_owned(), text),
            Some(_) => fields.refuse(name.as_str(), "must be given once"),
            None => fields.refuse(name.as_str(), "must be ASCII, with other characters percent-encoded as UTF-8"),
        }
    }
    let content_type = media_type(request).to_ascii_lowercase();
    if !content_type.is_empty() {
        attributes.insert("datacontenttype".into(), content_type.clone());
    }
    let event = event_of(&mut fields, attributes, publisher);
    let event = fields.finish_with(event)?;
    let (data, is_encoded) = read_data(body, &content_type)?;
    Ok(with_data(event, data, is_encoded))
}

/// Returns the text of a header in which characters beyond ASCII are percent-encoded, or `None` if a `%` begins
/// something else.
fn percent_decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|digits| !digits.starts_with('+'))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Returns the data of a binary CloudEvent as a payload, and whether it stands for bytes in base64.
fn read_data(body: &[u8], content_type: &str) -> Result<(Option<RawJson>, bool), Error> {
    let too_large = || Error::TooLarge { field: "body".into(), limit: limits::PAYLOAD_BYTES };
    if body.len() > limits::PAYLOAD_BYTES {
        return Err(too_large());
    }
    // Without a type, data is JSON if it can be.
    let is_untyped_json = || content_type.is_empty() && serde_json::from_slice::<&RawValue>(body).is_ok();
    let is_json = content_type == "application/json" || content_type.ends_with("+json") || is_untyped_json();
    let of_text = |text: &str| {
        let data = RawJson::of(&text).map_err(|error| Error::Internal(error.to_string()))?;
        if is_too_large(&data) { Err(too_large()) } else { Ok(data) }
    };
    match std::str::from_utf8(body) {
        Ok("") => Ok((None, false)),
        Ok(text) if is_json => {
            if is_too_deep(text) {
                return Err(Error::invalid("body", format!("must not nest deeper than {}", limits::JSON_DEPTH)));
            }
            let json = serde_json::from_str(text).map_err(|error| Error::MalformedJson(error.to_string()))?;
            Ok((Some(json), false))
        }
        Ok(text) => Ok((Some(of_text(text)?), false)),
        Err(_) if is_json => Err(Error::invalid("body", "must be UTF-8")),
        Err(_) => Ok((Some(of_text(&BASE64_STANDARD.encode(body))?), true)),
    }
}

/// Returns whether data is too large as a payload. The limit counts what is stored: a text is longer as a JSON string.
fn is_too_large(data: &RawJson) -> bool {
    data.as_str().len() > limits::PAYLOAD_BYTES
}

/// Returns the event of attributes, without its data. Errors are collected in `fields`.
fn event_of(
    fields: &mut RawFields<'_>,
    mut attributes: BTreeMap<String, String>,
    publisher: &Publisher,
) -> Option<NewEvent> {
    if attributes.remove("specversion").as_deref() != Some("1.0") {
        fields.refuse("specversion", "must be 1.0");
    }
    let mut required = |name: &str| {
        let value = attributes.get(name).filter(|value| !value.is_empty()).cloned();
        if value.is_none() {
            fields.refuse(name, "is required");
        }
        value
    };
    let (id, source, kind) = (required("id"), required("source"), required("type"));
    if let Some(Err(reason)) = attributes.get("time").map(|time| crate::domain::timestamp::parse(time)) {
        fields.refuse("time", reason);
    }
    let tags = match attributes.remove("tags").map(|tags| Tags::from_comma_separated(&tags)) {
        Some(Ok(tags)) => tags,
        Some(Err(reason)) => {
            fields.refuse("tags", reason);
            Tags::default()
        }
        None => Tags::default(),
    };
    let (id, source, kind) = (id?, source?, kind?);
    let mut event = NewEvent::titled(kind.chars().take(limits::TITLE_CHARS).collect());
    publisher.sign(&mut event);
    event.tags = tags;
    event.ordering_key = attributes.remove("partitionkey");
    // As in the header, a malformed value is ignored.
    let traceparent = attributes.remove("traceparent").filter(|value| is_traceparent(value));
    event.traceparent = traceparent.or(event.traceparent);
    attributes.remove("tracestate");
    event.event_type = Some(kind);
    attributes.remove("type");
    attributes.remove("id");
    event.labels = attributes;
    // The key can be longer than any that a publisher may name, so it is stored as a hash.
    let key = Sha256::digest(format!("{}:{source}{id}", source.len()));
    event.idempotency_key = Some(IdempotencyKey {
        origin: KeyOrigin::CloudEvents,
        key: BASE64_STANDARD.encode(key),
        fingerprint: Vec::new(),
    });
    check_event(fields, &event);
    Some(event)
}

/// Adds the data of an event, and then the fingerprint of all of it.
fn with_data(mut event: NewEvent, data: Option<RawJson>, is_encoded: bool) -> NewEvent {
    if is_encoded {
        event.labels.insert(ENCODING_LABEL.into(), "base64".into());
    }
    event.payload = data;
    if let Some(IdempotencyKey { origin, key, .. }) = event.idempotency_key.take() {
        event.idempotency_key = Some(IdempotencyKey::of(origin, key, &event));
    }
    event
}
