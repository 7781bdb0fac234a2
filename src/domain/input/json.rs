//! Fields whose values are parsed JSON.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{FieldValue, Fields};
use crate::domain::invalid::Invalid;

impl FieldValue for &Value {
    const NOUN: &'static str = "field";

    fn is_null(&self) -> bool {
        Value::is_null(self)
    }

    fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        T::deserialize(*self).ok()
    }

    fn string_pairs(&self) -> Option<Vec<(String, Option<String>)>> {
        let pair = |(name, value): (&String, &Value)| (name.clone(), value.as_str().map(str::to_owned));
        Some(self.as_object()?.iter().map(pair).collect())
    }
}

impl<'a> Fields<'a, &'a Value> {
    /// Returns the fields of an object.
    pub(crate) fn of_object(object: &'a Map<String, Value>) -> Self {
        Fields::new(object.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), value)))
    }

    /// Returns the recorded errors, if any. Each field that was not taken adds an error: it is unknown.
    pub(crate) fn finish_object(mut self) -> Result<(), Vec<Invalid>> {
        self.refuse_unknown();
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors) }
    }

    /// Takes a field and parses it.
    pub(crate) fn parse<T>(&mut self, name: &str, parse: impl FnOnce(&Value) -> Result<T, Invalid>) -> Option<T> {
        self.parse_all(name, |value| parse(value).map_err(|invalid| vec![invalid]))
    }

    /// Takes a field and parses it, recording every error inside it.
    pub(crate) fn parse_all<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&Value) -> Result<T, Vec<Invalid>>,
    ) -> Option<T> {
        match parse(self.take(name)?) {
            Ok(parsed) => Some(parsed),
            Err(errors) => {
                self.errors.extend(errors.into_iter().map(|invalid| invalid.inside(name)));
                None
            }
        }
    }
}
