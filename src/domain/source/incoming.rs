//! The event that a webhook becomes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::value_from::{check_event_type, scalar};
use super::webhook::Webhook;
use super::{SourceSpec, Verify};
use crate::domain::event::NewEvent;
use crate::domain::idempotency::{IdempotencyKey, KeyOrigin};
use crate::domain::ids::SourceId;
use crate::domain::input::InputError;
use crate::domain::json::{RawJson, is_too_deep};
use crate::domain::path::JsonPath;
use crate::domain::{limits, text};

/// The label with the type of a body that is not JSON.
const CONTENT_TYPE: &str = "content_type";
/// The label of a body that is not text. Its value is `base64`.
const PAYLOAD_ENCODING: &str = "payload_encoding";

/// The labels that describe a body that is not JSON.
pub(super) const BODY_LABELS: [&str; 2] = [CONTENT_TYPE, PAYLOAD_ENCODING];

impl SourceSpec {
    /// Returns the event that a webhook becomes. A JSON body becomes the payload as it is. Any other body becomes a
    /// JSON string, and labels say what it was. Two senders may use the same idempotency keys.
    pub(crate) fn incoming(&self, id: SourceId, webhook: &Webhook<'_>) -> Result<NewEvent, InputError> {
        let json = webhook.json();
        let event_type = self.event_type_from.as_ref().and_then(|from| from.find(webhook, json));
        let event_type = event_type.unwrap_or_else(|| self.name.clone());
        check_event_type(&event_type).map_err(|reason| InputError::invalid("event_type", reason))?;
        let key = self.idempotency_key_from.as_ref().and_then(|from| from.find(webhook, json));
        if let Some(key) = &key {
            let check = text::check(key, limits::NAME_CHARS);
            check.map_err(|reason| InputError::invalid("idempotency_key", reason))?;
        }
        let mut event = NewEvent {
            event_type: Some(event_type.clone()),
            tags: self.tags.clone(),
            labels: self.labels.clone(),
            ..NewEvent::titled(event_type)
        };
        event.payload = match json {
            Some(json) => Some(payload_of_json(json)?),
            None => payload_of_other(webhook, &mut event)?,
        };
        event.published_by = Some(format!("source:{}", self.name).into());
        event.idempotency_key = key.map(|key| IdempotencyKey::of(KeyOrigin::Source(id.0), key, &event));
        Ok(event)
    }

    /// Returns the text that the sender wants to see before it sends webhooks, if this is its request for that: the
    /// `url_verification` of Slack.
    pub(crate) fn challenge(&self, webhook: &Webhook<'_>) -> Option<String> {
        if !matches!(self.verify, Verify::Slack { .. }) {
            return None;
        }
        let json = webhook.json()?;
        let field = |name| JsonPath::parse(name).ok()?.find_raw(json).and_then(scalar);
        let challenge = field("challenge").filter(|text| text::check(text, limits::CHALLENGE_CHARS).is_ok());
        challenge.filter(|_| field("type").as_deref() == Some("url_verification"))
    }
}

fn payload_of_json(json: &RawValue) -> Result<RawJson, InputError> {
    if is_too_deep(json.get()) {
        return Err(InputError::invalid("body", format!("must nest at most {} deep", limits::JSON_DEPTH)));
    }
    Ok(RawJson::from_raw(json))
}

/// Returns the payload of a body that is not JSON, and labels the event.
fn payload_of_other(webhook: &Webhook<'_>, event: &mut NewEvent) -> Result<Option<RawJson>, InputError> {
    if webhook.body.is_empty() {
        return Ok(None);
    }
    if let Some(content_type) = webhook.header("content-type").filter(|value| !value.is_empty()) {
        let value = content_type.chars().take(limits::LABEL_CHARS).collect();
        event.labels.insert(CONTENT_TYPE.into(), value);
    }
    let payload = if let Ok(text) = str::from_utf8(webhook.body) {
        RawJson::of(&text)
    } else {
        event.labels.insert(PAYLOAD_ENCODING.into(), "base64".into());
        RawJson::of(&STANDARD.encode(webhook.body))
    };
    let payload = payload.map_err(|error| InputError::Malformed(error.to_string()))?;
    // Escapes and base64 make a body longer.
    if payload.as_str().len() > limits::PAYLOAD_BYTES {
        return Err(InputError::TooLarge { field: "body".into(), limit: limits::PAYLOAD_BYTES });
    }
    Ok(Some(payload))
}
