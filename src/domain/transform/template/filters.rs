//! The filters and tests that a template may use.
//!
//! The filters that produce text are defined here, and share one byte limit per rendering. The others
//! are minijinja's and never produce anything larger than their input.

use std::borrow::Cow;
use std::io::Write;

use minijinja::{Environment, Error, ErrorKind, State, Value, filters, tests};

use super::bounded::BoundedWriter;
use crate::domain::limits;

/// The names of the filters. The first [`NUMERIC`] always return a number if called without
/// arguments.
pub(super) const FILTERS: [&str; 18] = [
    "int", "float", "length", "count", "round", "abs", "default", "d", "first", "last", "items", "tojson", "string",
    "lower", "upper", "trim", "join", "replace",
];

/// The number of filters at the start of [`FILTERS`] that return numbers.
pub(super) const NUMERIC: usize = 6;

/// The names of the tests.
pub(super) const TESTS: [&str; 8] =
    ["defined", "undefined", "none", "boolean", "number", "string", "sequence", "mapping"];

/// Adds the filters and tests to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_filter("int", filters::int);
    environment.add_filter("float", filters::float);
    environment.add_filter("length", filters::length);
    environment.add_filter("count", filters::length);
    environment.add_filter("round", filters::round);
    environment.add_filter("abs", filters::abs);
    environment.add_filter("default", filters::default);
    environment.add_filter("d", filters::default);
    environment.add_filter("first", filters::first);
    environment.add_filter("last", filters::last);
    environment.add_filter("items", filters::items);
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", string);
    environment.add_filter("lower", lower);
    environment.add_filter("upper", upper);
    environment.add_filter("trim", trim);
    environment.add_filter("join", join);
    environment.add_filter("replace", replace);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("none", tests::is_none);
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("number", tests::is_number);
    environment.add_test("string", tests::is_string);
    environment.add_test("sequence", tests::is_sequence);
    environment.add_test("mapping", tests::is_mapping);
}

/// Returns a value as JSON of at most [`limits::RENDERED_BYTES`] bytes.
pub(super) fn json_of(value: &Value) -> Result<String, Error> {
    let mut out = BoundedWriter::new(limits::RENDERED_BYTES);
    serde_json::to_writer(&mut out, value).map_err(|error| invalid(format!("cannot be written as JSON: {error}")))?;
    String::from_utf8(out.into_bytes()).map_err(|error| invalid(error.to_string()))
}

/// The number of bytes that the filters of one rendering may still produce.
struct RemainingBytes(usize);

/// Returns a filter's result if it is within the remaining bytes, and subtracts its length.
fn charged(state: &mut State<'_, '_>, text: String) -> Result<String, Error> {
    let remaining = state.get_or_insert_extension(RemainingBytes(limits::TEMPLATE_SCRATCH_BYTES));
    remaining.0 = remaining.0.checked_sub(text.len()).ok_or_else(|| invalid("the filters make too much text"))?;
    Ok(text)
}

fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

fn to_json(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let json = json_of(value)?;
    charged(state, json).map(Value::from_safe_string)
}

fn string(state: &mut State<'_, '_>, value: &Value) -> Result<String, Error> {
    let text = text_of(value)?.into_owned();
    charged(state, text)
}

fn lower(state: &mut State<'_, '_>, value: &Value) -> Result<String, Error> {
    let text = text_of(value)?.to_lowercase();
    charged(state, text)
}

fn upper(state: &mut State<'_, '_>, value: &Value) -> Result<String, Error> {
    let text = text_of(value)?.to_uppercase();
    charged(state, text)
}

fn trim(state: &mut State<'_, '_>, value: &Value) -> Result<String, Error> {
    let text = text_of(value)?.trim().to_owned();
    charged(state, text)
}

fn join(state: &mut State<'_, '_>, value: &Value, between: Option<&str>) -> Result<String, Error> {
    let mut out = BoundedWriter::new(limits::RENDERED_BYTES);
    for (index, item) in value.try_iter()?.enumerate() {
        let before = if index == 0 { "" } else { between.unwrap_or_default() };
        write!(out, "{before}{}", text_of(&item)?).map_err(too_long)?;
    }
    let text = into_text(out)?;
    charged(state, text)
}

fn replace(state: &mut State<'_, '_>, value: &Value, from: &str, to: &str) -> Result<String, Error> {
    if from.is_empty() {
        return Err(invalid("there is nothing to replace in an empty string"));
    }
    let text = text_of(value)?;
    let mut out = BoundedWriter::new(limits::RENDERED_BYTES);
    for (index, part) in text.split(from).enumerate() {
        let before = if index == 0 { "" } else { to };
        write!(out, "{before}{part}").map_err(too_long)?;
    }
    let text = into_text(out)?;
    charged(state, text)
}

/// Returns a value as text: a string verbatim, an empty string for a missing value or null, and any
/// other value as JSON of at most [`limits::RENDERED_BYTES`] bytes. The engine's own formatting is not
/// used because it follows Python.
pub(super) fn text_of(value: &Value) -> Result<Cow<'_, str>, Error> {
    if value.is_none() || value.is_undefined() {
        return Ok(Cow::Borrowed(""));
    }
    match value.as_str() {
        Some(text) => Ok(Cow::Borrowed(text)),
        None => json_of(value).map(Cow::Owned),
    }
}

fn into_text(out: BoundedWriter) -> Result<String, Error> {
    String::from_utf8(out.into_bytes()).map_err(|error| invalid(error.to_string()))
}

fn too_long(_: std::io::Error) -> Error {
    invalid("a filter makes too much text")
}
