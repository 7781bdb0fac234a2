//! Where a value is found in a webhook: in a header, or in the body.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::webhook::Webhook;
use crate::domain::event_pattern::{SYSTEM_PREFIX, is_system};
use crate::domain::input::Fields;
use crate::domain::invalid::Invalid;
use crate::domain::path::JsonPath;
use crate::domain::{limits, text};

/// Where a value is found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueFrom {
    Header(String),
    Path(JsonPath),
    /// The same for every webhook.
    Value(String),
}

impl ValueFrom {
    /// Parses where an event type is found.
    pub(super) fn parse_event_type(value: &Value) -> Result<Self, Vec<Invalid>> {
        Self::parse(value, "must be an object with a header, a path or a value", true)
    }

    /// Parses where an idempotency key is found. A fixed one would make all webhooks repetitions of the first.
    pub(super) fn parse_key(value: &Value) -> Result<Self, Vec<Invalid>> {
        Self::parse(value, "must be an object with a header or a path", false)
    }

    fn parse(value: &Value, expected: &str, may_be_fixed: bool) -> Result<Self, Vec<Invalid>> {
        let object = value.as_object().ok_or_else(|| vec![Invalid::new("", expected)])?;
        let mut fields = Fields::of_object(object);
        let header = fields.parse_text("header", |name| check_header_name(name).map(|()| name.to_owned()));
        let path = fields.parse_text("path", JsonPath::parse);
        let fixed = match may_be_fixed {
            true => fields.parse_text("value", |value| check_event_type(value).map(|()| value.to_owned())),
            false => None,
        };
        fields.finish_object()?;
        match (header, path, fixed) {
            (Some(header), None, None) => Ok(ValueFrom::Header(header)),
            (None, Some(path), None) => Ok(ValueFrom::Path(path)),
            (None, None, Some(value)) => Ok(ValueFrom::Value(value)),
            _ => Err(vec![Invalid::new("", expected)]),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            ValueFrom::Header(name) => json!({"header": name}),
            ValueFrom::Path(path) => json!({"path": path.to_string()}),
            ValueFrom::Value(value) => json!({"value": value}),
        }
    }

    /// Returns the value in a webhook with this JSON, or `None` if there is none or it is empty. A number or a boolean
    /// counts as text.
    pub(super) fn find(&self, webhook: &Webhook<'_>, json: Option<&RawValue>) -> Option<String> {
        let found = match self {
            ValueFrom::Header(name) => webhook.header(name).map(str::to_owned),
            ValueFrom::Path(path) => path.find_raw(json?).and_then(scalar),
            ValueFrom::Value(value) => Some(value.clone()),
        };
        found.filter(|text| !text.is_empty())
    }
}

/// Returns a JSON string, number or boolean as text.
pub(super) fn scalar(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

/// Checks the name of a header. The error is the reason for refusal.
pub(super) fn check_header_name(name: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = (1..=limits::HEADER_NAME_CHARS).contains(&name.len()) && name.bytes().all(is_token);
    match is_name {
        true => Ok(()),
        false => Err(format!("must be a header name of 1 to {} characters", limits::HEADER_NAME_CHARS)),
    }
}

/// Checks a text that becomes an event type. The error is the reason for refusal.
pub(super) fn check_event_type(event_type: &str) -> Result<(), String> {
    text::check(event_type, limits::NAME_CHARS)?;
    match is_system(Some(event_type)) {
        true => Err(format!("must not begin with {SYSTEM_PREFIX}, which is for the server's own events")),
        false => Ok(()),
    }
}
