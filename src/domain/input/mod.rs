//! Reads input field by field and collects all errors.
//!
//! Request bodies, query parameters and subscriptions are all read through [`Fields`]. They differ
//! only in the type of their values ([`FieldValue`]). Each method takes one field and returns `None`
//! if the field is absent or invalid. Errors are recorded instead of returned at once, because a
//! client should learn of all its mistakes in one response. A field that was never taken is unknown,
//! and [`Fields::finish`] refuses it.

mod json;
mod query;
mod raw;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;

pub(crate) use query::QueryValue;
pub(crate) use raw::{RawFields, read_items};

use super::invalid::Invalid;
use super::seconds::Seconds;
use super::tags::Tags;
use super::{limits, text, timestamp, worker_id};

/// The maximum number of fields of an object, far above what any request needs. The limit bounds the
/// work: each name is compared with all names before it, and each unknown field is reported.
pub(crate) const MAX_FIELDS: usize = 100;

/// The number of characters of a client's field name that an error repeats.
const SHOWN_CHARS: usize = 100;

/// The value of a field.
pub(crate) trait FieldValue {
    /// The noun for a field in error texts: `field` or `parameter`.
    const NOUN: &'static str;

    /// Returns whether the value is `null`, which counts as absent.
    fn is_null(&self) -> bool;

    /// Returns the value as a `T`, or `None` if it is not one.
    fn parse<T: DeserializeOwned>(&self) -> Option<T>;

    /// Returns the text of a timestamp.
    fn timestamp_text(&self) -> Option<String> {
        self.parse()
    }

    /// Returns the pairs of an object, including repeated names, with `None` for each value that is
    /// not a string. Returns `None` if the value is not an object.
    fn string_pairs(&self) -> Option<Vec<(String, Option<String>)>>;
}

/// The reason why input was refused.
#[derive(Debug)]
pub enum InputError {
    /// The input is not JSON.
    Malformed(String),
    /// Fields are missing, unknown or invalid.
    Invalid(Vec<Invalid>),
    /// A field has more bytes than allowed.
    TooLarge {
        field: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// A field is missing and no error was recorded: a bug in the reader.
    Incomplete,
}

impl InputError {
    /// Returns an error about one field.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        InputError::Invalid(vec![Invalid::new(field, reason)])
    }

    /// Returns the same error with `parent` prepended to its field names.
    #[must_use]
    pub fn inside(self, parent: &str) -> Self {
        match self {
            InputError::Invalid(errors) => {
                InputError::Invalid(errors.into_iter().map(|invalid| invalid.inside(parent)).collect())
            }
            InputError::TooLarge { field, limit } => InputError::TooLarge { field: format!("{parent}.{field}"), limit },
            other => other,
        }
    }
}

/// The fields of one object, or the parameters of one query.
pub(crate) struct Fields<'a, V> {
    entries: Vec<(Cow<'a, str>, V)>,
    errors: Vec<Invalid>,
    too_large: Option<(String, usize)>,
}

impl<'a, V: FieldValue> Fields<'a, V> {
    /// Creates the fields from `entries`. A name that is given twice is an error.
    pub(crate) fn new(entries: impl IntoIterator<Item = (Cow<'a, str>, V)>) -> Self {
        let mut fields = Fields { entries: Vec::new(), errors: Vec::new(), too_large: None };
        for (name, value) in entries {
            if fields.contains(&name) {
                fields.refuse(shown(&name), "is given twice");
            } else {
                fields.entries.push((name, value));
            }
        }
        fields
    }

    /// Records an error about a field.
    pub(crate) fn refuse(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.errors.push(Invalid::new(field, reason));
    }

    /// Records an error about a part of `field`.
    pub(crate) fn refuse_inside(&mut self, field: &str, invalid: Invalid) {
        self.errors.push(invalid.inside(field));
    }

    /// Records the errors of another reader that read a part of the same input.
    pub(crate) fn refuse_all(&mut self, error: InputError) {
        match error {
            InputError::Invalid(errors) => self.errors.extend(errors),
            InputError::TooLarge { field, limit } => drop(self.too_large.get_or_insert((field, limit))),
            InputError::Malformed(reason) => self.refuse("body", reason),
            InputError::Incomplete => self.refuse("body", "is incomplete"),
        }
    }

    /// Returns whether any error has been recorded.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty() || self.too_large.is_some()
    }

    /// Returns whether a field is present and not `null`.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.entries.iter().any(|(known, value)| known == name && !value.is_null())
    }

    /// Takes a field without parsing it. Returns `None` if it is absent or `null`.
    pub(crate) fn take(&mut self, name: &str) -> Option<V> {
        let index = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.swap_remove(index).1).filter(|value| !value.is_null())
    }

    /// Takes all fields whose names begin with `prefix`, even if they are `null`. Returns the rest of their names.
    pub(crate) fn take_all(&mut self, prefix: &str) -> Vec<(String, V)> {
        let (taken, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(|(name, _)| name.starts_with(prefix));
        self.entries = kept;
        taken.into_iter().map(|(name, value)| (name[prefix.len()..].to_owned(), value)).collect()
    }

    /// Takes a field of any type; `expected` names the type in the error.
    pub(crate) fn value<T: DeserializeOwned>(&mut self, name: &str, expected: &str) -> Option<T> {
        let parsed = self.take(name)?.parse();
        if parsed.is_none() {
            self.refuse(name, format!("must be {expected}"));
        }
        parsed
    }

    /// Takes a string and parses it.
    pub(crate) fn parse_text<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value: String = self.value(name, "a string of valid Unicode")?;
        self.check(name, parse(&value))
    }

    /// Takes a string of 1 to `max` characters.
    pub(crate) fn text(&mut self, name: &str, max: usize) -> Option<String> {
        self.parse_text(name, |value| text::check(value, max).map(|()| value.to_owned()))
    }

    /// Takes a string of 0 to `max` characters.
    pub(crate) fn text_or_empty(&mut self, name: &str, max: usize) -> Option<String> {
        self.parse_text(name, |value| text::check_optional(value, max).map(|()| value.to_owned()))
    }

    /// Takes a whole number within a range.
    pub(crate) fn integer<T>(&mut self, name: &str, range: RangeInclusive<T>) -> Option<T>
    where
        T: DeserializeOwned + PartialOrd + Display,
    {
        self.ranged(name, "a whole number", range)
    }

    /// Takes an identifier.
    pub(crate) fn id<Id: From<i64>>(&mut self, name: &str) -> Option<Id> {
        self.integer(name, limits::ID).map(Id::from)
    }

    /// Takes 1 to `max` identifiers. Returns them in ascending order, each once.
    pub(crate) fn id_list(&mut self, name: &str, max: usize) -> Option<Vec<i64>> {
        let mut ids: Vec<i64> = self.value(name, "a list of whole numbers")?;
        // No ids are not a condition that nothing fulfils: without the condition all rows would be meant.
        let checked = match (1..=max).contains(&ids.len()) {
            true if ids.iter().all(|id| limits::ID.contains(id)) => Ok(()),
            true => Err(format!("must hold whole numbers from {} on", limits::ID.start())),
            false => Err(format!("must hold 1 to {max} ids")),
        };
        self.check(name, checked)?;
        ids.sort_unstable();
        ids.dedup();
        Some(ids)
    }

    /// Takes a number within a range.
    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Option<f64> {
        self.ranged(name, "a number", range)
    }

    /// Takes a duration of 0 to `max` seconds, fractions allowed.
    pub(crate) fn seconds(&mut self, name: &str, max: Seconds) -> Option<Seconds> {
        self.ranged(name, "a number of seconds", Seconds::ZERO..=max)
    }

    /// Takes a duration within a range of whole seconds, fractions allowed.
    pub(crate) fn seconds_within(&mut self, name: &str, range: RangeInclusive<i64>) -> Option<Seconds> {
        self.ranged(name, "a number of seconds", Seconds::whole(*range.start())..=Seconds::whole(*range.end()))
    }

    /// Takes one of a fixed set of strings; `list` names them in the error.
    pub(crate) fn choice<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>, list: &str) -> Option<T> {
        let expected = format!("one of {list}");
        let value: String = self.value(name, &expected)?;
        self.check(name, parse(&value).ok_or_else(|| format!("must be {expected}")))
    }

    /// Takes `true` or `false`.
    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        self.value(name, "true or false")
    }

    /// Takes an RFC 3339 timestamp.
    pub(crate) fn timestamp(&mut self, name: &str) -> Option<DateTime<Utc>> {
        let value = self.take(name)?.timestamp_text();
        self.check(
            name,
            value.ok_or_else(|| "must be an RFC 3339 timestamp".into()).and_then(|text| timestamp::parse(&text)),
        )
    }

    /// Takes tags, as a comma-separated string or a list of strings.
    pub(crate) fn tags(&mut self, name: &str) -> Option<Tags> {
        let value = self.take(name)?;
        let tags = if let Some(text) = value.parse::<String>() {
            Tags::from_comma_separated(&text)
        } else if let Some(words) = value.parse::<Vec<String>>() {
            Tags::from_words(words.iter().map(String::as_str))
        } else {
            Err("must be a comma-separated string or a list of strings".into())
        };
        self.check(name, tags)
    }

    /// Takes at least one tag: an empty list would match every event.
    pub(crate) fn some_tags(&mut self, name: &str) -> Option<Tags> {
        let tags = self.tags(name)?;
        self.check(name, not_empty(tags))
    }

    /// Takes at least one tag, as a list of strings.
    pub(crate) fn tag_list(&mut self, name: &str) -> Option<Tags> {
        let words: Vec<String> = self.value(name, "a list of strings")?;
        self.check(name, Tags::from_words(words.iter().map(String::as_str)).and_then(not_empty))
    }

    /// Takes labels: an object whose values are strings.
    pub(crate) fn labels(&mut self, name: &str) -> Option<BTreeMap<String, String>> {
        let pairs = self.take(name)?.string_pairs();
        let pairs = self.check(name, pairs.ok_or_else(|| "must be an object of strings".into()))?;
        if pairs.len() > limits::LABELS {
            self.refuse(name, format!("must be at most {} pairs", limits::LABELS));
            return None;
        }
        let mut labels = BTreeMap::new();
        for (label, value) in pairs {
            let field = shown(&label);
            match check_label(&label, value) {
                Ok(value) => {
                    if labels.insert(label, value).is_some() {
                        self.refuse_inside(name, Invalid::new(field, "is given twice"));
                    }
                }
                Err(reason) => self.refuse_inside(name, Invalid::new(field, reason)),
            }
        }
        Some(labels)
    }

    /// Takes the id of a worker.
    pub(crate) fn worker_id(&mut self, name: &str) -> Option<String> {
        self.parse_text(name, |value| worker_id::check(value).map(|()| value.to_owned()))
    }

    /// Takes a field that must be present. `take` records its own error if the field is invalid.
    pub(crate) fn required<T>(&mut self, name: &str, take: impl FnOnce(&mut Self, &str) -> Option<T>) -> Option<T> {
        if self.is_given(name) {
            return take(self, name);
        }
        self.take(name);
        self.refuse(name, "is required");
        None
    }

    /// Returns the recorded errors, if any. Each field that was not taken adds an error: it is unknown.
    pub(crate) fn finish(mut self) -> Result<(), InputError> {
        self.refuse_unknown();
        if !self.errors.is_empty() {
            return Err(InputError::Invalid(self.errors));
        }
        match self.too_large {
            Some((field, limit)) => Err(InputError::TooLarge { field, limit }),
            None => Ok(()),
        }
    }

    /// Returns `value`, or the recorded errors. If `value` is `None`, an error must have been recorded.
    pub(crate) fn finish_with<T>(self, value: Option<T>) -> Result<T, InputError> {
        self.finish()?;
        value.ok_or(InputError::Incomplete)
    }

    fn refuse_unknown(&mut self) {
        let unknown: Vec<String> = self.entries.iter().map(|(name, _)| shown(name)).collect();
        for name in unknown {
            self.refuse(name, format!("is not a known {}", V::NOUN));
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.entries.iter().any(|(known, _)| known == name)
    }

    fn ranged<T>(&mut self, name: &str, kind: &str, range: RangeInclusive<T>) -> Option<T>
    where
        T: DeserializeOwned + PartialOrd + Display,
    {
        let expected = format!("{kind} between {} and {}", range.start(), range.end());
        let value: T = self.value(name, &expected)?;
        self.check(name, if range.contains(&value) { Ok(value) } else { Err(format!("must be {expected}")) })
    }

    fn check<T>(&mut self, name: &str, outcome: Result<T, String>) -> Option<T> {
        outcome.map_err(|reason| self.refuse(name, reason)).ok()
    }
}

fn not_empty(tags: Tags) -> Result<Tags, String> {
    if tags.is_empty() { Err("must not be empty".into()) } else { Ok(tags) }
}

pub(crate) fn check_label(label: &str, value: Option<String>) -> Result<String, String> {
    if label.is_empty() {
        return Err("must not have a pair with an empty name".into());
    }
    text::check(label, limits::LABEL_CHARS)?;
    let value = value.ok_or("must be a string of valid Unicode")?;
    text::check_optional(&value, limits::LABEL_CHARS)?;
    Ok(value)
}

/// Returns the first 100 characters of a name that a client chose, for use in an error.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARS).collect()
}
