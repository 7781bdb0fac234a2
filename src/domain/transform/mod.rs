//! What is made of a payload before it is sent.

mod parse;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::path::JsonPath;

/// What is made of a payload: first fields are selected, then it is given a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Transform {
    keep: Vec<JsonPath>,
    drop: Vec<JsonPath>,
    shape: Shape,
}

/// The shape of a body.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// The payload alone.
    Payload,
    /// The payload within what else is known of the event.
    Envelope,
    /// The same by CloudEvents, all in the body.
    CloudEventsStructured,
    /// The same by CloudEvents, the payload in the body and the rest in headers.
    CloudEventsBinary,
    /// Whatever a template says.
    Template { text: String, content_type: Option<String> },
}

/// An event on its way to a receiver.
#[derive(Debug, Clone, Copy)]
pub struct Parcel<'a> {
    /// What the receiver knows it by: `webhook-id`.
    pub webhook_id: &'a str,
    /// What kind of thing happened.
    pub event_type: Option<&'a str>,
    /// A line for people.
    pub title: &'a str,
    /// When it was published.
    pub time: DateTime<Utc>,
    /// Its tags.
    pub tags: &'a [String],
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// What happened, as JSON text; `null` if there is nothing to say.
    pub payload: &'a str,
    /// Ties events of one story together.
    pub correlation_id: Option<&'a str>,
    /// By which it is kept in order.
    pub ordering_key: Option<&'a str>,
    /// Where it comes from, as CloudEvents wants to know: a URI.
    pub source: &'a str,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The body.
    pub body: bytes::Bytes,
    /// What it is.
    pub content_type: String,
    /// Headers that belong to it.
    pub headers: Vec<(String, String)>,
}

/// Makes what is sent. With no transform it is the payload, byte for byte. The error says why
/// this event cannot be rendered; no other attempt would fare better.
pub fn render(transform: Option<&Transform>, parcel: &Parcel<'_>) -> Result<Rendered, String> {
    let _ = transform;
    Ok(Rendered {
        body: bytes::Bytes::copy_from_slice(parcel.payload.as_bytes()),
        content_type: "application/json".into(),
        headers: Vec::new(),
    })
}
