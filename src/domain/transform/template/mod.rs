//! Templates: bodies that a subscriber writes in a subset of the Jinja language.
//!
//! Any client that may register a subscription may register a template, so a template must not be
//! able to exhaust the server. The engine, minijinja, counts steps. But one step may double a string,
//! and forty of these steps fill any memory. The language is therefore reduced until nothing grows
//! uncounted ([`language`]): there are loops, conditions and variables, but no concatenation, no
//! captured blocks, and no lists except of constants. The filters ([`filters`]) are defined here or
//! known to be cheap, and share one byte limit. The size of the output is checked while it is written.
//!
//! If the body is JSON, a string is escaped so that it can stand between quotes,
//! `"Order {{ payload.id }} was paid"`, and any other value is written as JSON.
//! `{{ payload.name|tojson }}` writes a string with its quotes. If the body is not JSON, strings are
//! written verbatim, null is empty, and any other value is written as JSON.

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
use super::envelope::format_time;
use crate::domain::ids::EventId;
use crate::domain::limits;

const NAME: &str = "template";

/// A checked and compiled template.
#[derive(Clone)]
pub(super) struct Template {
    text: String,
    environment: Arc<Environment<'static>>,
}

impl Template {
    /// Parses a template; `is_json` says whether the body is JSON. The error is the reason for
    /// refusal.
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
        environment.add_template_owned(NAME, text.to_owned()).map_err(|error| describe_error(&error))?;
        Ok(Self { text: text.to_owned(), environment: Arc::new(environment) })
    }

    /// Returns the source text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Renders the template for `input`, with `payload` in place of the input's own payload. The
    /// error says why the event cannot be rendered.
    pub(super) fn render(&self, input: &TransformInput<'_>, payload: &str) -> Result<Vec<u8>, String> {
        let payload = serde_json::from_str(payload).map_err(|error| format!("the payload cannot be read: {error}"));
        let context = Context::of(input, payload?);
        let mut environment = Environment::clone(&self.environment);
        environment.set_fuel(Some(max_steps(input.payload.len())));
        let mut body = BoundedWriter::new(limits::RENDERED_BYTES);
        let rendered = environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(Serde(&context), &mut body).map(|_| ()));
        match rendered {
            _ if body.is_over() => Err(format!("the template made more than {} bytes", limits::RENDERED_BYTES)),
            Ok(()) => Ok(body.into_bytes()),
            Err(error) => Err(format!("the template {}", describe_error(&error))),
        }
    }
}

/// Returns the number of steps that a template may take for a payload of `bytes` bytes. A step may
/// read the whole payload, so a larger payload allows fewer steps.
fn max_steps(bytes: usize) -> u64 {
    let steps = limits::TEMPLATE_WORK_BYTES / (bytes as u64).max(1);
    steps.clamp(limits::TEMPLATE_LEAST_STEPS, limits::TEMPLATE_STEPS)
}

/// The variables of a template.
#[derive(Serialize)]
struct Context<'a> {
    webhook_id: &'a str,
    event_id: Option<EventId>,
    event_type: Option<&'a str>,
    title: &'a str,
    created_at: String,
    tags: &'a [String],
    labels: &'a BTreeMap<String, String>,
    payload: serde_json::Value,
    correlation_id: Option<&'a str>,
}

impl<'a> Context<'a> {
    fn of(input: &TransformInput<'a>, payload: serde_json::Value) -> Self {
        Self {
            webhook_id: input.webhook_id,
            event_id: input.event_id,
            event_type: input.event_type,
            title: input.title,
            created_at: format_time(input.created_at),
            tags: input.tags,
            labels: input.labels,
            payload,
            correlation_id: input.correlation_id,
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
    // Without its quotes, because the string stands inside another string.
    let inner = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&json);
    out.write_str(inner).map_err(|_| Error::from(ErrorKind::WriteFailure))
}

/// Describes an error with its line, as the end of a sentence that starts with "the template".
fn describe_error(error: &Error) -> String {
    let description = match error.kind() {
        ErrorKind::OutOfFuel => "takes too many steps for a payload of this size".to_owned(),
        kind => match error.detail() {
            Some(detail) => format!("has a fault: {kind}: {detail}"),
            None => format!("has a fault: {kind}"),
        },
    };
    match error.line() {
        Some(line) => format!("{description} (line {line})"),
        None => description,
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
