//! Templates: a body in the subscriber's own words.
//!
//! Who may register a subscription may register a template, so a template must not be able to
//! take the server down. The engine, minijinja, counts steps; but one step may double a
//! string, and forty of them fill any memory. So the language is cut down until nothing grows
//! without being counted ([`language`]): there are loops, conditions and names, but no
//! concatenation, no captured blocks and no lists of anything but constants; and the filters
//! ([`filters`]) are our own or known to be cheap, and share an allowance. What comes out is
//! bounded as it is written.
//!
//! Where the result is JSON, a string is escaped so that it can stand between quotes,
//! `"Order {{ payload.id }} was paid"`, and anything else is written as JSON. A string comes
//! with its own quotes by `{{ payload.name|tojson }}`. Elsewhere strings are written as they
//! are, null is empty, and all else is JSON.

mod bounded;
mod filters;
mod language;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};
use serde::Serialize;

use self::bounded::BoundedWriter;
use super::TransformInput;
use super::envelope::written;
use crate::domain::limits;

const NAME: &str = "template";

/// A template, checked and compiled.
#[derive(Clone)]
pub(super) struct Template {
    text: String,
    environment: Arc<Environment<'static>>,
}

impl Template {
    /// Reads a template for a body that is JSON or is not. The error is the reason for refusal.
    pub(super) fn parse(text: &str, is_json: bool) -> Result<Self, String> {
        if text.len() > limits::TEMPLATE_BYTES {
            return Err(format!("must be at most {} bytes long", limits::TEMPLATE_BYTES));
        }
        if text.contains('\0') {
            return Err("must not contain the character U+0000".into());
        }
        language::check(text)?;
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_formatter(if is_json { write_as_json } else { write_as_text });
        filters::install(&mut environment);
        environment.add_template_owned(NAME, text.to_owned()).map_err(|error| complaint(&error))?;
        Ok(Self { text: text.to_owned(), environment: Arc::new(environment) })
    }

    /// As it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Renders it over a parcel with this payload. The error says why it cannot be.
    pub(super) fn render(&self, parcel: &TransformInput<'_>, payload: &str) -> Result<Vec<u8>, String> {
        let payload = serde_json::from_str(payload).map_err(|error| format!("the payload cannot be read: {error}"));
        let context = Context::of(parcel, payload?);
        let mut environment = Environment::clone(&self.environment);
        environment.set_fuel(Some(steps_over(parcel.payload.len())));
        let mut body = BoundedWriter::new(limits::RENDERED_BYTES);
        let rendered = environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(Serde(&context), &mut body).map(|_| ()));
        match rendered {
            _ if body.is_over() => Err(format!("the template made more than {} bytes", limits::RENDERED_BYTES)),
            Ok(()) => Ok(body.into_bytes()),
            Err(error) => Err(format!("the template {}", complaint(&error))),
        }
    }
}

/// How many steps a template may take over a payload of this size.
fn steps_over(bytes: usize) -> u64 {
    let steps = limits::TEMPLATE_WORK_BYTES / (bytes as u64).max(1);
    steps.clamp(limits::TEMPLATE_LEAST_STEPS, limits::TEMPLATE_STEPS)
}

/// What a template may name.
#[derive(Serialize)]
struct Context<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: Option<&'a str>,
    title: &'a str,
    time: String,
    tags: &'a [String],
    labels: &'a BTreeMap<String, String>,
    payload: serde_json::Value,
    correlation_id: Option<&'a str>,
}

impl<'a> Context<'a> {
    fn of(parcel: &TransformInput<'a>, payload: serde_json::Value) -> Self {
        Self {
            id: parcel.webhook_id,
            event_type: parcel.event_type,
            title: parcel.title,
            time: written(parcel.time),
            tags: parcel.tags,
            labels: parcel.labels,
            payload,
            correlation_id: parcel.correlation_id,
        }
    }
}

fn write_as_text(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    out.write_str(&filters::text_of(value)?).map_err(|_| Error::from(ErrorKind::WriteFailure))
}

fn write_as_json(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_undefined() || value.is_safe() {
        return write_as_text(out, state, value);
    }
    let json = filters::json_of(value)?;
    // Between the quotes, for a string stands in the middle of another.
    let inner = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&json);
    out.write_str(inner).map_err(|_| Error::from(ErrorKind::WriteFailure))
}

/// What went wrong, with the line, as the end of a sentence.
fn complaint(error: &Error) -> String {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "takes too many steps for a payload of this size".to_owned(),
        kind => match error.detail() {
            Some(detail) => format!("has a fault: {kind}: {detail}"),
            None => format!("has a fault: {kind}"),
        },
    };
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Template").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests;
