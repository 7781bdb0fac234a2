//! Fields whose values are query parameters.

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

use super::FieldValue;

/// The decoded value of a query parameter.
#[derive(Debug)]
pub(crate) struct QueryValue(pub String);

impl FieldValue for QueryValue {
    const NOUN: &'static str = "parameter";

    fn is_null(&self) -> bool {
        false
    }

    /// Parses strings verbatim, and numbers, `true` and `false` in JSON syntax.
    fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        let as_string = T::deserialize(StrDeserializer::<Error>::new(&self.0)).ok();
        let is_padded = self.0.trim() != self.0;
        as_string.or_else(|| if is_padded { None } else { serde_json::from_str(&self.0).ok() })
    }

    /// Returns the text with spaces replaced by `+`: the `+` of an offset that the client did not
    /// percent-encode arrives as a space.
    fn timestamp_text(&self) -> Option<String> {
        Some(self.0.replace(' ', "+"))
    }

    fn string_pairs(&self) -> Option<Vec<(String, Option<String>)>> {
        None
    }
}
