//! Parsing and serialising of transforms.

use serde_json::{Map, Value, json};

use super::template::Template;
use super::{JSON, Shape, Transform, is_json};
use crate::domain::invalid::Invalid;
use crate::domain::limits;
use crate::domain::path::JsonPath;

const STRUCTURED: &str = "structured";
const BINARY: &str = "binary";

impl Transform {
    /// Parses a transform. The field named in an error is relative to the transform.
    pub fn parse(value: &Value) -> Result<Self, Invalid> {
        const KNOWN: [&str; 6] = ["keep", "drop", "template", "content_type", "envelope", "cloudevents"];
        let Value::Object(fields) = value else { return Err(Invalid::new("", "must be a JSON object")) };
        if let Some(unknown) = fields.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            let shown: String = unknown.chars().take(40).collect();
            return Err(Invalid::new(shown, "is not a known field"));
        }
        let transform =
            Self { keep: read_paths(fields, "keep")?, drop: read_paths(fields, "drop")?, shape: read_shape(fields)? };
        if transform.keep.is_empty() && transform.drop.is_empty() && transform.shape == Shape::Payload {
            return Err(Invalid::new("", "must say something: keep, drop, template, envelope or cloudevents"));
        }
        Ok(transform)
    }

    /// Returns the transform as JSON. [`Transform::parse`] of the result gives the same transform.
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        let paths = |paths: &[JsonPath]| paths.iter().map(|path| Value::from(path.to_string())).collect::<Value>();
        let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        if !self.keep.is_empty() {
            put("keep", paths(&self.keep));
        }
        if !self.drop.is_empty() {
            put("drop", paths(&self.drop));
        }
        match &self.shape {
            Shape::Payload => None,
            Shape::Envelope => put("envelope", json!(true)),
            Shape::CloudEventsStructured => put("cloudevents", json!(STRUCTURED)),
            Shape::CloudEventsBinary => put("cloudevents", json!(BINARY)),
            Shape::Template { template, content_type } => {
                put("content_type", json!(content_type));
                put("template", json!(template.text()))
            }
        };
        Value::Object(fields)
    }
}

fn present_field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn read_paths(fields: &Map<String, Value>, name: &str) -> Result<Vec<JsonPath>, Invalid> {
    let Some(value) = present_field(fields, name) else { return Ok(Vec::new()) };
    let items = value.as_array().ok_or_else(|| Invalid::new(name, "must be a list of paths"))?;
    if items.is_empty() || items.len() > limits::TRANSFORM_PATHS {
        return Err(Invalid::new(name, format!("must list 1 to {} paths", limits::TRANSFORM_PATHS)));
    }
    let read = |(index, item): (usize, &Value)| {
        let path = item.as_str().ok_or_else(|| "must be a string".to_owned()).and_then(JsonPath::parse);
        path.map_err(|reason| Invalid::new(format!("{name}[{index}]"), reason))
    };
    items.iter().enumerate().map(read).collect()
}

fn read_shape(fields: &Map<String, Value>) -> Result<Shape, Invalid> {
    let shapes = [read_template(fields)?, read_envelope(fields)?, read_cloudevents(fields)?];
    let mut shapes = shapes.into_iter().flatten();
    let shape = shapes.next().unwrap_or(Shape::Payload);
    if shapes.next().is_some() {
        return Err(Invalid::new("", "must have only one of template, envelope and cloudevents"));
    }
    Ok(shape)
}

fn read_template(fields: &Map<String, Value>) -> Result<Option<Shape>, Invalid> {
    let content_type = read_content_type(fields)?;
    let Some(value) = present_field(fields, "template") else {
        let stray = content_type.map(|_| Invalid::new("content_type", "goes with a template only"));
        return stray.map_or(Ok(None), Err);
    };
    let content_type = content_type.unwrap_or(JSON).to_owned();
    let text = value.as_str().ok_or_else(|| "must be a string".to_owned());
    let template = text.and_then(|text| Template::parse(text, is_json(&content_type)));
    let template = template.map_err(|reason| Invalid::new("template", reason))?;
    Ok(Some(Shape::Template { template, content_type }))
}

fn read_content_type(fields: &Map<String, Value>) -> Result<Option<&str>, Invalid> {
    let Some(value) = present_field(fields, "content_type") else { return Ok(None) };
    let is_fine = |text: &&str| {
        text.len() <= limits::CONTENT_TYPE_CHARS
            && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
            && text.split_once('/').is_some_and(|(kind, form)| !kind.trim().is_empty() && !form.trim().is_empty())
    };
    let content_type = value.as_str().filter(is_fine);
    content_type.map(Some).ok_or_else(|| Invalid::new("content_type", "must be a media type, such as text/plain"))
}

fn read_envelope(fields: &Map<String, Value>) -> Result<Option<Shape>, Invalid> {
    match present_field(fields, "envelope") {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(Shape::Envelope)),
        Some(_) => Err(Invalid::new("envelope", "must be true or false")),
    }
}

fn read_cloudevents(fields: &Map<String, Value>) -> Result<Option<Shape>, Invalid> {
    match present_field(fields, "cloudevents").map(|value| value.as_str().unwrap_or_default()) {
        None => Ok(None),
        Some(STRUCTURED) => Ok(Some(Shape::CloudEventsStructured)),
        Some(BINARY) => Ok(Some(Shape::CloudEventsBinary)),
        Some(_) => Err(Invalid::new("cloudevents", "must be structured or binary")),
    }
}
