//! Serialising of the settings of sources.

use serde_json::{Map, Value, json};

use super::SourceSpec;
use super::value_from::ValueFrom;

impl SourceSpec {
    /// Returns every field with its effective value. [`SourceSpec::parse`] of the result gives the same source.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let fields = [
            ("name", json!(self.name)),
            ("provider", json!(self.provider)),
            ("verify", self.verify.to_json()),
            ("event_type_from", json!(self.event_type_from.as_ref().map(ValueFrom::to_json))),
            ("idempotency_key_from", json!(self.idempotency_key_from.as_ref().map(ValueFrom::to_json))),
            ("tags", json!(self.tags.as_slice())),
            ("labels", json!(self.labels)),
            ("respond", self.respond.to_json()),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
