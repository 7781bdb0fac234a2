//! A JSON object, taken apart field by field: all that is wrong is gathered, and what nobody
//! asked for is refused.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::choices::Choice;
use crate::domain::event_pattern::EventPattern;
use crate::domain::invalid::Invalid;
use crate::domain::tags::Tags;
use crate::domain::{limits, text};

/// The fields of one object, and what is wrong with them.
pub(super) struct Reader<'a> {
    fields: &'a Map<String, Value>,
    taken: Vec<&'static str>,
    errors: Vec<Invalid>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(fields: &'a Map<String, Value>) -> Self {
        Self { fields, taken: Vec::new(), errors: Vec::new() }
    }

    /// Ends the taking: what is left is unknown.
    pub(super) fn finish(mut self) -> Result<(), Vec<Invalid>> {
        for name in self.fields.keys().filter(|name| !self.taken.contains(&name.as_str())) {
            let shown: String = name.chars().take(40).collect();
            self.errors.push(Invalid::new(shown, "is not a known field"));
        }
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors) }
    }

    /// Complains about a field.
    pub(super) fn refuse(&mut self, name: &str, reason: impl Into<String>) {
        self.errors.push(Invalid::new(name, reason));
    }

    /// Takes a field as it stands. An explicit `null` counts as left out.
    pub(super) fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.taken.push(name);
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Takes a field by way of its own rules.
    pub(super) fn parsed<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, Invalid>,
    ) -> Option<T> {
        self.parsed_all(name, |value| parse(value).map_err(|invalid| vec![invalid]))
    }

    /// Takes a field by way of rules that may find several faults.
    pub(super) fn parsed_all<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, Vec<Invalid>>,
    ) -> Option<T> {
        match parse(self.value(name)?) {
            Ok(parsed) => Some(parsed),
            Err(errors) => {
                self.errors.extend(errors.into_iter().map(|invalid| invalid.inside(name)));
                None
            }
        }
    }

    /// Takes a string that must pass a check.
    pub(super) fn text<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.parsed(name, |value| {
            let text = value.as_str().ok_or_else(|| Invalid::new("", "must be a string"))?;
            parse(text).map_err(|reason| Invalid::new("", reason))
        })
    }

    /// Takes one of few words.
    pub(super) fn choice<T: Choice>(&mut self, name: &'static str) -> Option<T> {
        self.parsed(name, |value| {
            let chosen = T::WORDS.iter().find(|(_, word)| value.as_str() == Some(word));
            chosen.map(|(choice, _)| *choice).ok_or_else(|| {
                let words: Vec<&str> = T::WORDS.iter().map(|(_, word)| *word).collect();
                Invalid::new("", format!("must be {}", words.join(" or ")))
            })
        })
    }

    /// Takes a whole number within a range.
    pub(super) fn integer(&mut self, name: &'static str, range: RangeInclusive<i32>) -> Option<i32> {
        self.parsed(name, |value| {
            let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
            number.filter(|number| range.contains(number)).ok_or_else(|| out_of("a whole number", &range))
        })
    }

    /// Takes a number within a range.
    pub(super) fn number(&mut self, name: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        self.parsed(name, |value| {
            value.as_f64().filter(|number| range.contains(number)).ok_or_else(|| out_of("a number", &range))
        })
    }

    /// Takes tags, as a comma-separated string or a list of strings.
    pub(super) fn tags(&mut self, name: &'static str) -> Option<Tags> {
        self.parsed(name, |value| {
            let words = value.as_array().map(|items| items.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
            let tags = match (value, words.flatten()) {
                (Value::String(text), _) => Tags::from_comma_separated(text),
                (_, Some(words)) => Tags::from_words(words),
                _ => Err("must be a comma-separated string or a list of strings".into()),
            };
            tags.map_err(|reason| Invalid::new("", reason))
        })
    }

    /// Takes labels.
    pub(super) fn labels(&mut self, name: &'static str) -> Option<BTreeMap<String, String>> {
        self.parsed_all(name, |value| read_labels(object(value)?))
    }

    /// Takes patterns of event types, as a string or a list of strings, each once.
    pub(super) fn patterns(&mut self, name: &'static str) -> Option<Vec<EventPattern>> {
        self.parsed_all(name, |value| match value {
            Value::String(pattern) => {
                EventPattern::parse(pattern).map(|pattern| vec![pattern]).map_err(|reason| whole(&reason))
            }
            Value::Array(items) => read_patterns(items),
            _ => Err(whole("must be a string or a list of strings")),
        })
    }
}

fn read_patterns(items: &[Value]) -> Result<Vec<EventPattern>, Vec<Invalid>> {
    if items.len() > limits::EVENT_PATTERNS {
        return Err(whole(&format!("must be at most {} patterns", limits::EVENT_PATTERNS)));
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

fn read_labels(pairs: &Map<String, Value>) -> Result<BTreeMap<String, String>, Vec<Invalid>> {
    if pairs.len() > limits::LABELS {
        return Err(whole(&format!("must be at most {} pairs", limits::LABELS)));
    }
    let mut labels = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, value) in pairs {
        let checked = text::check(name, limits::LABEL_CHARS).and_then(|()| {
            let value = value.as_str().ok_or("must be a string")?;
            text::check_optional(value, limits::LABEL_CHARS)?;
            Ok(value)
        });
        match checked {
            Ok(value) => {
                labels.insert(name.clone(), value.to_owned());
            }
            Err(reason) => {
                let shown: String = name.chars().take(40).collect();
                errors.push(Invalid::new(shown, reason));
            }
        }
    }
    if errors.is_empty() { Ok(labels) } else { Err(errors) }
}

/// The pairs of an object, or a complaint that it is none.
pub(super) fn object(value: &Value) -> Result<&Map<String, Value>, Vec<Invalid>> {
    value.as_object().ok_or_else(|| whole("must be an object of strings"))
}

fn whole(reason: &str) -> Vec<Invalid> {
    vec![Invalid::new("", reason)]
}

fn out_of<T: Display>(kind: &str, range: &RangeInclusive<T>) -> Invalid {
    Invalid::new("", format!("must be {kind} between {} and {}", range.start(), range.end()))
}
