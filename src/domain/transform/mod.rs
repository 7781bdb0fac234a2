//! What is made of a payload before it is sent.
//!
//! A [`Transform`] may first select fields of the payload (`keep`, `drop`) and then give the
//! body a shape: an envelope, an event by CloudEvents, or a template. With none the payload
//! is sent byte for byte; and wherever it is put into something else without being selected
//! from, it keeps its bytes there too.

mod cloudevents;
mod envelope;
mod parse;
mod select;
mod template;

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;

use self::template::Template;
use super::path::JsonPath;

const JSON: &str = "application/json";

/// What is made of a payload: first fields are selected, then it is given a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Transform {
    keep: Vec<JsonPath>,
    drop: Vec<JsonPath>,
    shape: Shape,
}

impl Transform {
    /// Whether there is a template in it, which may take its time over a payload of any size.
    pub fn has_template(&self) -> bool {
        matches!(self.shape, Shape::Template { .. })
    }
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
    Template { template: Template, content_type: String },
}

/// An event on its way to a receiver.
#[derive(Debug, Clone, Copy)]
pub struct TransformInput<'a> {
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
    pub body: Bytes,
    /// What it is.
    pub content_type: String,
    /// Headers that belong to it.
    pub headers: Vec<(String, String)>,
}

impl Rendered {
    fn new(body: impl Into<Bytes>, content_type: &str) -> Self {
        Self { body: body.into(), content_type: content_type.to_owned(), headers: Vec::new() }
    }

    fn json(document: &impl Serialize, content_type: &str) -> Result<Self, String> {
        let body = serde_json::to_vec(document).map_err(|error| error.to_string())?;
        Ok(Self::new(body, content_type))
    }
}

/// Makes what is sent. With no transform it is the payload, byte for byte. The error says why
/// this event cannot be rendered; no other attempt would fare better.
pub fn render(transform: Option<&Transform>, parcel: &TransformInput<'_>) -> Result<Rendered, String> {
    let Some(transform) = transform else { return Ok(Rendered::new(parcel.payload.to_owned(), JSON)) };
    let payload = transform.selected(parcel.payload)?;
    match &transform.shape {
        Shape::Payload => Ok(Rendered::new(payload.into_owned(), JSON)),
        Shape::Envelope => envelope::render(parcel, &payload),
        Shape::CloudEventsStructured => cloudevents::render_structured(parcel, &payload),
        Shape::CloudEventsBinary => Ok(cloudevents::render_binary(parcel, &payload)),
        Shape::Template { template, content_type } => {
            let body = template.render(parcel, &payload)?;
            if is_json(content_type) {
                let checked = serde_json::from_slice::<&RawValue>(&body);
                checked.map_err(|error| format!("the template did not make JSON: {error}"))?;
            }
            Ok(Rendered::new(body, content_type))
        }
    }
}

impl Transform {
    fn selected<'p>(&self, payload: &'p str) -> Result<Cow<'p, str>, String> {
        if self.keep.is_empty() && self.drop.is_empty() {
            return Ok(Cow::Borrowed(payload));
        }
        let selected = select::select(payload, &self.keep, &self.drop);
        selected.map(Cow::Owned).map_err(|reason| format!("the payload {reason}"))
    }
}

/// Whether a content type promises JSON.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == JSON || essence.ends_with("+json")
}

#[cfg(test)]
mod tests;
