//! Transforms: how the body of a webhook request is made from a payload.
//!
//! A [`Transform`] may first select fields of the payload (`keep`, `drop`) and then give the body a
//! shape: an envelope, a CloudEvents event, or a template. Without a transform the payload is sent
//! byte for byte. A payload that is put into an envelope or a CloudEvents event also keeps its bytes,
//! unless fields are selected.

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
use super::ids::EventId;
use super::path::JsonPath;

const JSON: &str = "application/json";

/// A transform of a payload: first fields are selected, then the body is given a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Transform {
    keep: Vec<JsonPath>,
    drop: Vec<JsonPath>,
    shape: Shape,
}

impl Transform {
    /// Returns whether the transform has a template. Rendering one may be slow for a payload of any
    /// size.
    pub fn has_template(&self) -> bool {
        matches!(self.shape, Shape::Template { .. })
    }
}

/// The shape of a body.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// The payload alone.
    Payload,
    /// An object with the payload and the event's id, type, creation time and labels.
    Envelope,
    /// CloudEvents in structured mode: everything is in the body.
    CloudEventsStructured,
    /// CloudEvents in binary mode: the payload is in the body, the other attributes in headers.
    CloudEventsBinary,
    /// The output of a template.
    Template { template: Template, content_type: String },
}

/// The event from which a request is rendered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransformInput<'a> {
    /// The value of the `webhook-id` header.
    pub webhook_id: &'a str,
    /// `None` for a test, which has no event.
    pub event_id: Option<EventId>,
    pub event_type: Option<&'a str>,
    pub title: &'a str,
    /// The time of publishing.
    pub created_at: DateTime<Utc>,
    pub tags: &'a [String],
    pub labels: &'a BTreeMap<String, String>,
    /// The payload as JSON text; `null` if the event has none.
    pub payload: &'a str,
    pub correlation_id: Option<&'a str>,
    pub ordering_key: Option<&'a str>,
    /// The `source` attribute of CloudEvents, a URI.
    pub source: &'a str,
}

/// A rendered request body, with the headers that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub body: Bytes,
    pub content_type: String,
    /// The attributes of CloudEvents in binary mode; otherwise empty.
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

/// Renders the body of a request. Without a transform it is the payload, byte for byte. The error
/// says why the event cannot be rendered; another attempt would fail in the same way.
pub(crate) fn render(transform: Option<&Transform>, input: &TransformInput<'_>) -> Result<Rendered, String> {
    let Some(transform) = transform else { return Ok(Rendered::new(input.payload.to_owned(), JSON)) };
    let payload = transform.selected(input.payload)?;
    match &transform.shape {
        Shape::Payload => Ok(Rendered::new(payload.into_owned(), JSON)),
        Shape::Envelope => envelope::render(input, &payload),
        Shape::CloudEventsStructured => cloudevents::render_structured(input, &payload),
        Shape::CloudEventsBinary => Ok(cloudevents::render_binary(input, &payload)),
        Shape::Template { template, content_type } => {
            let body = template.render(input, &payload)?;
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

/// Returns whether a content type denotes JSON.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == JSON || essence.ends_with("+json")
}

#[cfg(test)]
mod tests;
