//! A JSON object, taken apart field by field.
//!
//! Values stay slices of the body until somebody asks for them, so a payload is neither
//! parsed nor copied on the way; and all that is wrong is gathered, so that a client learns
//! of every mistake at once. What nobody asked for is an unknown field, and refused.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::domain::invalid::Invalid;
use crate::domain::json::{RawJson, is_too_deep};
use crate::domain::raw_entries::RawEntries;
use crate::domain::seconds::Seconds;
use crate::domain::tags::Tags;
use crate::domain::{limits, text, timestamp, worker_id};
use crate::error::Error;

/// Fields that an object may have: far more than there are. Each is compared with all before it,
/// and each that is unknown is complained about.
pub const MOST_FIELDS: usize = 100;

/// Characters of a name that are repeated in a complaint about it.
const SHOWN_CHARS: usize = 100;

/// The fields of one object.
pub struct Fields<'a> {
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
    errors: Vec<Invalid>,
    too_large: Option<(String, usize)>,
}

impl<'a> Fields<'a> {
    /// Reads a whole body.
    pub fn of_body(body: &'a [u8]) -> Result<Self, Error> {
        let malformed = |error: serde_json::Error| Error::MalformedJson(error.to_string());
        let document: &RawValue = serde_json::from_slice(body).map_err(malformed)?;
        Self::of_value(document).map_err(|reason| Error::invalid("body", reason))
    }

    /// Reads a value that ought to be an object.
    pub fn of_value(value: &'a RawValue) -> Result<Self, String> {
        if !value.get().starts_with('{') {
            return Err("must be a JSON object".into());
        }
        let entries: RawEntries<'a> = serde_json::from_str(value.get()).map_err(|error| error.to_string())?;
        if entries.0.len() > MOST_FIELDS {
            return Err(format!("must have at most {MOST_FIELDS} fields"));
        }
        let mut fields = Fields { entries: Vec::with_capacity(entries.0.len()), errors: Vec::new(), too_large: None };
        for (name, value) in entries.0 {
            if fields.entries.iter().any(|(known, _)| *known == name) {
                fields.errors.push(Invalid::new(shown(&name), "is given twice"));
            } else {
                fields.entries.push((name, value));
            }
        }
        Ok(fields)
    }

    /// Complains about a field.
    pub fn refuse(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.errors.push(Invalid::new(field, reason));
    }

    /// Whether anything was complained about so far.
    pub fn has_complaints(&self) -> bool {
        !self.errors.is_empty() || self.too_large.is_some()
    }

    /// Complains about something inside a field.
    pub fn refuse_inside(&mut self, field: &str, invalid: Invalid) {
        self.errors.push(invalid.inside(field));
    }

    /// Passes on what somebody else complained about who read a part of the body.
    pub fn refuse_all(&mut self, error: Error) {
        match error {
            Error::Invalid(errors) => self.errors.extend(errors),
            Error::TooLarge { field, limit } => drop(self.too_large.get_or_insert((field, limit))),
            other => self.refuse("body", other.to_string()),
        }
    }

    /// Takes a field as it stands. An explicit `null` counts as left out.
    pub fn raw(&mut self, name: &str) -> Option<&'a RawValue> {
        let index = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.swap_remove(index).1).filter(|value| value.get() != "null")
    }

    /// Takes a field of some type, `expected` being its name for people.
    pub fn value<T: DeserializeOwned>(&mut self, name: &str, expected: &str) -> Option<T> {
        let raw = self.raw(name)?;
        let parsed = serde_json::from_str(raw.get());
        if parsed.is_err() {
            self.refuse(name, format!("must be {expected}"));
        }
        parsed.ok()
    }

    /// Takes a text of 1 to `max` characters.
    pub fn text(&mut self, name: &str, max: usize) -> Option<String> {
        let value: String = self.value(name, "a string of valid Unicode")?;
        self.checked(name, text::check(&value, max))?;
        Some(value)
    }

    /// Takes a text of 0 to `max` characters.
    pub fn text_or_empty(&mut self, name: &str, max: usize) -> Option<String> {
        let value: String = self.value(name, "a string of valid Unicode")?;
        self.checked(name, text::check_optional(&value, max))?;
        Some(value)
    }

    /// Takes a whole number within a range.
    pub fn integer<T>(&mut self, name: &str, range: RangeInclusive<T>) -> Option<T>
    where
        T: DeserializeOwned + PartialOrd + fmt::Display,
    {
        let expected = format!("a whole number between {} and {}", range.start(), range.end());
        let value: T = self.value(name, &expected)?;
        if range.contains(&value) {
            return Some(value);
        }
        self.refuse(name, format!("must be {expected}"));
        None
    }

    /// Takes a number within a range.
    pub fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let expected = format!("a number between {} and {}", range.start(), range.end());
        let value: f64 = self.value(name, &expected)?;
        if range.contains(&value) {
            return Some(value);
        }
        self.refuse(name, format!("must be {expected}"));
        None
    }

    /// Takes a duration of 0 to `max` seconds, fractions allowed.
    pub fn seconds(&mut self, name: &str, max: Seconds) -> Option<Seconds> {
        let expected = format!("a number of seconds between 0 and {max}");
        let value: Seconds = self.value(name, &expected)?;
        if (Seconds::ZERO..=max).contains(&value) {
            return Some(value);
        }
        self.refuse(name, format!("must be {expected}"));
        None
    }

    /// Takes one word of a closed list.
    pub fn word<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>, list: &str) -> Option<T> {
        let value: String = self.value(name, "a string")?;
        let parsed = parse(&value);
        if parsed.is_none() {
            self.refuse(name, format!("must be one of {list}"));
        }
        parsed
    }

    /// Takes a `true` or `false`.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        self.value(name, "true or false")
    }

    /// Takes an RFC 3339 timestamp.
    pub fn timestamp(&mut self, name: &str) -> Option<DateTime<Utc>> {
        let value: String = self.value(name, "an RFC 3339 timestamp")?;
        self.checked(name, timestamp::parse(&value))
    }

    /// Takes tags, as a comma-separated string or a list of strings.
    pub fn tags(&mut self, name: &str) -> Option<Tags> {
        const EXPECTED: &str = "a comma-separated string or a list of strings";
        let raw = self.raw(name)?;
        let parsed = if raw.get().starts_with('"') {
            serde_json::from_str::<String>(raw.get()).map(|text| Tags::from_comma_separated(&text))
        } else {
            serde_json::from_str::<Vec<String>>(raw.get())
                .map(|words| Tags::from_words(words.iter().map(String::as_str)))
        };
        match parsed {
            Ok(tags) => self.checked(name, tags),
            Err(_) => {
                self.refuse(name, format!("must be {EXPECTED}"));
                None
            }
        }
    }

    /// Takes an object of strings: its pairs in the order given, doubles included.
    pub fn strings(&mut self, name: &str) -> Option<Vec<(String, String)>> {
        let raw = self.raw(name)?;
        let pairs = serde_json::from_str::<RawEntries<'_>>(raw.get()).and_then(|entries| {
            let pair = |(name, value): (Cow<'_, str>, &RawValue)| Ok((name.into(), serde_json::from_str(value.get())?));
            entries.0.into_iter().map(pair).collect()
        });
        if pairs.is_err() {
            self.refuse(name, "must be an object of strings");
        }
        pairs.ok()
    }

    /// Takes a list of 1 to [`limits::BATCH`] values, as they stand.
    pub fn items(&mut self, name: &str) -> Option<Vec<&'a RawValue>> {
        let raw = self.raw(name)?;
        let Ok(items) = serde_json::from_str::<Vec<&'a RawValue>>(raw.get()) else {
            self.refuse(name, "must be a list");
            return None;
        };
        if items.is_empty() || items.len() > limits::BATCH {
            self.refuse(name, format!("must hold 1 to {} items", limits::BATCH));
            return None;
        }
        Some(items)
    }

    /// Takes any JSON value of at most `max` bytes, verbatim.
    pub fn json(&mut self, name: &str, max: usize) -> Option<RawJson> {
        let raw = self.raw(name)?;
        if raw.get().len() > max {
            self.too_large.get_or_insert((name.to_owned(), max));
            return None;
        }
        if is_too_deep(raw.get()) {
            self.refuse_inside(name, too_deep());
            return None;
        }
        Some(RawJson::from_raw(raw))
    }

    /// Takes `worker_id`, which must be there.
    pub fn worker_id(&mut self) -> Option<String> {
        let value: Option<String> = self.required("worker_id", |fields| fields.value("worker_id", "a string"));
        let value = value?;
        self.checked("worker_id", worker_id::check(&value))?;
        Some(value)
    }

    /// Insists that a field is there; `take` complains by itself if it is there but wrong.
    pub fn required<T>(&mut self, name: &str, take: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let is_there = self.entries.iter().any(|(known, value)| known == name && value.get() != "null");
        if !is_there {
            self.raw(name);
            self.refuse(name, "is required");
            return None;
        }
        take(self)
    }

    /// Takes all that is left, for somebody else to read. What is given twice at any depth is
    /// refused: of two conditions of one name, one would be dropped without a word.
    pub fn rest(&mut self) -> Map<String, Value> {
        let mut rest = Map::new();
        for (name, value) in std::mem::take(&mut self.entries) {
            let read = if is_too_deep(value.get()) { Err(too_deep()) } else { without_doubles(value) };
            match read {
                Ok(value) => drop(rest.insert(name.into_owned(), value)),
                Err(invalid) => self.refuse_inside(&shown(&name), invalid),
            }
        }
        rest
    }

    /// Ends the taking: whatever is left is unknown, and all complaints come out.
    pub fn finish(mut self) -> Result<(), Error> {
        let unknown: Vec<String> = self.entries.iter().map(|(name, _)| shown(name)).collect();
        for name in unknown {
            self.refuse(name, "is not a known field");
        }
        if !self.errors.is_empty() {
            return Err(Error::Invalid(self.errors));
        }
        match self.too_large {
            Some((field, limit)) => Err(Error::TooLarge { field, limit }),
            None => Ok(()),
        }
    }

    /// Ends the taking and hands out what was read.
    pub fn finish_with<T>(self, value: Option<T>) -> Result<T, Error> {
        self.finish()?;
        value.ok_or_else(|| Error::Internal("a field is missing and nobody complained".into()))
    }

    fn checked<T>(&mut self, name: &str, outcome: Result<T, String>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(reason) => {
                self.refuse(name, reason);
                None
            }
        }
    }
}

fn too_deep() -> Invalid {
    Invalid::new("", format!("must nest at most {} deep", limits::JSON_DEPTH))
}

/// A value in which no object has a name twice. One of the two would be dropped without a word,
/// and with it, say, a condition of a filter. It must not be too deep.
fn without_doubles(raw: &RawValue) -> Result<Value, Invalid> {
    let wrong = |error: serde_json::Error| Invalid::new("", error.to_string());
    match raw.get().as_bytes().first() {
        Some(b'{') => {
            let mut fields = Map::new();
            for (name, value) in serde_json::from_str::<RawEntries<'_>>(raw.get()).map_err(wrong)?.0 {
                let value = without_doubles(value).map_err(|invalid| invalid.inside(&shown(&name)))?;
                if fields.contains_key(&*name) {
                    return Err(Invalid::new(shown(&name), "is given twice"));
                }
                fields.insert(name.into_owned(), value);
            }
            Ok(Value::Object(fields))
        }
        Some(b'[') => {
            let items = serde_json::from_str::<Vec<&RawValue>>(raw.get()).map_err(wrong)?.into_iter().enumerate();
            let read = |(index, item)| without_doubles(item).map_err(|invalid| invalid.inside(&format!("[{index}]")));
            items.map(read).collect()
        }
        _ => serde_json::from_str(raw.get()).map_err(wrong),
    }
}

/// A name that a client chose, as it is repeated to it: not at any length.
pub fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARS).collect()
}

/// Reads one item of a list, `place` being where it stands: `events[3]`.
pub fn read_item<'a, T>(
    item: &'a RawValue,
    place: &str,
    take: impl FnOnce(&mut Fields<'a>) -> Option<T>,
) -> Result<T, Error> {
    let mut fields = Fields::of_value(item).map_err(|reason| Error::invalid(place, reason))?;
    let value = take(&mut fields);
    fields.finish_with(value).map_err(|error| match error {
        Error::Invalid(invalid) => Error::Invalid(invalid.into_iter().map(|one| one.inside(place)).collect()),
        Error::TooLarge { field, limit } => Error::TooLarge { field: format!("{place}.{field}"), limit },
        other => other,
    })
}

#[cfg(test)]
mod tests;
