//! Fields of request bodies, whose values are slices of the body.
//!
//! A payload is therefore not parsed into a tree on its way to the database.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{FieldValue, Fields, InputError, MAX_FIELDS, shown};
use crate::domain::invalid::Invalid;
use crate::domain::json::{RawJson, is_too_deep, nests_deeper_than};
use crate::domain::limits;
use crate::domain::raw_entries::RawEntries;

/// The fields of a request body, or of an object in it.
pub(crate) type RawFields<'a> = Fields<'a, &'a RawValue>;

impl FieldValue for &RawValue {
    const NOUN: &'static str = "field";

    fn is_null(&self) -> bool {
        self.get() == "null"
    }

    fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.get()).ok()
    }

    fn string_pairs(&self) -> Option<Vec<(String, Option<String>)>> {
        let entries: RawEntries<'_> = serde_json::from_str(self.get()).ok()?;
        let pair = |(name, value): (std::borrow::Cow<'_, str>, &RawValue)| (name.into_owned(), value.parse());
        Some(entries.0.into_iter().map(pair).collect())
    }
}

impl<'a> RawFields<'a> {
    /// Returns the fields of a request body.
    pub(crate) fn of_body(body: &'a [u8]) -> Result<Self, InputError> {
        let malformed = |error: serde_json::Error| InputError::Malformed(error.to_string());
        let document: &RawValue = serde_json::from_slice(body).map_err(malformed)?;
        Self::of_value(document).map_err(|reason| InputError::invalid("body", reason))
    }

    /// Returns the fields of a request body that may be left out.
    pub(crate) fn of_optional_body(body: &'a [u8]) -> Result<Self, InputError> {
        Self::of_body(if body.is_empty() { b"{}" } else { body })
    }

    /// Returns the fields of a value, or the reason why it is not a valid object.
    pub(crate) fn of_value(value: &'a RawValue) -> Result<Self, String> {
        if !value.get().starts_with('{') {
            return Err("must be a JSON object".into());
        }
        let entries: RawEntries<'a> = serde_json::from_str(value.get()).map_err(|error| error.to_string())?;
        if entries.0.len() > MAX_FIELDS {
            return Err(format!("must have at most {MAX_FIELDS} fields"));
        }
        Ok(Fields::new(entries.0))
    }

    /// Takes an object and reads its fields.
    pub(crate) fn object<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let object = read_object(self.take(name)?, name, read);
        object.map_err(|error| self.refuse_all(error)).ok()
    }

    /// Takes a list of 1 to [`limits::BATCH`] values without parsing them.
    pub(crate) fn items(&mut self, name: &str) -> Option<Vec<&'a RawValue>> {
        self.items_within(name, 1)
    }

    /// Takes a list of `min` to [`limits::BATCH`] values without parsing them.
    pub(crate) fn items_within(&mut self, name: &str, min: usize) -> Option<Vec<&'a RawValue>> {
        let Ok(items) = serde_json::from_str::<Vec<&'a RawValue>>(self.take(name)?.get()) else {
            self.refuse(name, "must be a list");
            return None;
        };
        if !(min..=limits::BATCH).contains(&items.len()) {
            self.refuse(name, format!("must hold {min} to {} items", limits::BATCH));
            return None;
        }
        Some(items)
    }

    /// Takes any JSON value of at most `max` bytes, verbatim.
    pub(crate) fn json(&mut self, name: &str, max: usize) -> Option<RawJson> {
        let raw = self.take(name)?;
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

    /// Takes any JSON value of at most `max` bytes and `depth` levels, verbatim and parsed. A repeated name is an error
    /// at any depth.
    pub(crate) fn parsed_json(&mut self, name: &str, max: usize, depth: usize) -> Option<(RawJson, Value)> {
        let raw = self.json(name, max)?;
        let parsed = match nests_deeper_than(raw.as_str(), depth) {
            true => Err(Invalid::new("", format!("must nest at most {depth} deep"))),
            false => parse_without_duplicates(raw.as_raw()),
        };
        match parsed {
            Ok(value) => Some((raw, value)),
            Err(invalid) => {
                self.refuse_inside(name, invalid);
                None
            }
        }
    }

    /// Takes all remaining fields, for another reader. A repeated name is an error at any depth:
    /// otherwise one of two filter conditions with the same name would be dropped silently.
    pub(crate) fn rest(&mut self) -> Map<String, Value> {
        let mut remaining = Map::new();
        for (name, value) in std::mem::take(&mut self.entries) {
            let parsed = if is_too_deep(value.get()) { Err(too_deep()) } else { parse_without_duplicates(value) };
            match parsed {
                Ok(value) => drop(remaining.insert(name.into_owned(), value)),
                Err(invalid) => self.refuse_inside(&shown(&name), invalid),
            }
        }
        remaining
    }
}

fn too_deep() -> Invalid {
    Invalid::new("", format!("must nest at most {} deep", limits::JSON_DEPTH))
}

/// Parses a value and refuses objects with a repeated name. It recurses, so the caller must have
/// checked the depth.
fn parse_without_duplicates(raw: &RawValue) -> Result<Value, Invalid> {
    let invalid = |error: serde_json::Error| Invalid::new("", error.to_string());
    match raw.get().as_bytes().first() {
        Some(b'{') => {
            let mut fields = Map::new();
            for (name, value) in serde_json::from_str::<RawEntries<'_>>(raw.get()).map_err(invalid)?.0 {
                let value = parse_without_duplicates(value).map_err(|invalid| invalid.inside(&shown(&name)))?;
                if fields.contains_key(&*name) {
                    return Err(Invalid::new(shown(&name), "is given twice"));
                }
                fields.insert(name.into_owned(), value);
            }
            Ok(Value::Object(fields))
        }
        Some(b'[') => {
            let items = serde_json::from_str::<Vec<&RawValue>>(raw.get()).map_err(invalid)?.into_iter().enumerate();
            let read =
                |(index, item)| parse_without_duplicates(item).map_err(|invalid| invalid.inside(&format!("[{index}]")));
            items.map(read).collect()
        }
        _ => serde_json::from_str(raw.get()).map_err(invalid),
    }
}

/// Reads the items of the list `name`, or returns the errors of all items. Stops at
/// [`limits::BATCH`] errors, so the response stays bounded.
pub(crate) fn read_items<'a, T>(
    name: &str,
    items: &[&'a RawValue],
    read: impl Fn(&mut RawFields<'a>) -> Option<T>,
) -> Result<Vec<T>, InputError> {
    let mut values = Vec::with_capacity(items.len());
    let mut errors = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match read_object(item, &format!("{name}[{index}]"), &read) {
            Ok(value) => values.push(value),
            Err(InputError::Invalid(invalid)) => errors.extend(invalid),
            Err(error) => return Err(error),
        }
        if errors.len() >= limits::BATCH {
            break;
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(InputError::Invalid(errors)) }
}

/// Reads an object inside the input; `path` is its position, such as `events[3]`.
fn read_object<'a, T>(
    value: &'a RawValue,
    path: &str,
    read: impl FnOnce(&mut RawFields<'a>) -> Option<T>,
) -> Result<T, InputError> {
    let mut fields = RawFields::of_value(value).map_err(|reason| InputError::invalid(path, reason))?;
    let value = read(&mut fields);
    fields.finish_with(value).map_err(|error| error.inside(path))
}
