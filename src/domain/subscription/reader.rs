//! Parsing of fields that only subscriptions have.

use serde_json::{Map, Value};

use super::choices::Choice;
use crate::domain::event_pattern::EventPattern;
use crate::domain::input::Fields;
use crate::domain::invalid::Invalid;
use crate::domain::limits;
use crate::domain::tags::Tags;

const STRINGS: &str = "must be a list of strings";

/// The fields of a subscription.
pub(super) type SpecFields<'a> = Fields<'a, &'a Value>;

/// Takes a setting with a fixed set of values.
pub(super) fn take_choice<T: Choice>(fields: &mut SpecFields<'_>, name: &str) -> Option<T> {
    let names: Vec<&str> = T::NAMES.iter().map(|(_, name)| *name).collect();
    let parse = |given: &str| T::NAMES.iter().find(|(_, name)| *name == given).map(|(choice, _)| *choice);
    fields.choice(name, parse, &names.join(", "))
}

/// Takes patterns of event types, as a list of strings, and removes duplicates.
pub(super) fn take_patterns(fields: &mut SpecFields<'_>, name: &str) -> Option<Vec<EventPattern>> {
    fields.parse_all(name, |value| parse_patterns(list(value)?))
}

/// Takes tags, as a list of strings.
pub(super) fn take_tags(fields: &mut SpecFields<'_>, name: &str) -> Option<Tags> {
    fields.parse_all(name, |value| {
        let words: Option<Vec<&str>> = list(value)?.iter().map(Value::as_str).collect();
        let words = words.ok_or_else(|| error_of_field(STRINGS))?;
        Tags::from_words(words).map_err(|reason| error_of_field(&reason))
    })
}

fn list(value: &Value) -> Result<&[Value], Vec<Invalid>> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| error_of_field(STRINGS))
}

fn parse_patterns(items: &[Value]) -> Result<Vec<EventPattern>, Vec<Invalid>> {
    if items.len() > limits::EVENT_PATTERNS {
        return Err(error_of_field(&format!("must be at most {} patterns", limits::EVENT_PATTERNS)));
    }
    let mut patterns = Vec::new();
    let mut errors = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item.as_str().ok_or_else(|| "must be a string".to_owned()).and_then(EventPattern::parse) {
            Ok(pattern) if patterns.contains(&pattern) => {}
            Ok(pattern) => patterns.push(pattern),
            Err(reason) => errors.push(Invalid::new(format!("[{index}]"), reason)),
        }
    }
    if errors.is_empty() { Ok(patterns) } else { Err(errors) }
}

/// Returns the pairs of an object, or an error if the value is not an object.
pub(super) fn object(value: &Value) -> Result<&Map<String, Value>, Vec<Invalid>> {
    value.as_object().ok_or_else(|| error_of_field("must be an object of strings"))
}

fn error_of_field(reason: &str) -> Vec<Invalid> {
    vec![Invalid::new("", reason)]
}
