//! Tests of whole sources.

mod events;
mod examples;
mod settings;
mod verification;

use serde_json::{Map, Value};

use super::*;
use crate::domain::invalid::Invalid;

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn source(value: &Value) -> SourceSpec {
    SourceSpec::parse_new(fields(value)).unwrap().0
}

fn verify(value: &Value) -> Verify {
    Verify::parse(&fields(value)).unwrap()
}

fn webhook<'a>(headers: &[(&'a str, &'a str)], body: &'a [u8]) -> Webhook<'a> {
    Webhook { headers: headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect(), body }
}

fn names(errors: Vec<Invalid>) -> Vec<String> {
    errors.into_iter().map(|error| error.field).collect()
}

/// A secret that fits every scheme.
const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
