//! The filters of operations, without what their reader may not see.
//!
//! A filter by `text` or `payload` contains values of payloads and error texts, and the operation tells by its count and
//! by the log which events have them. So they are hidden from a key without `reveal`, and redacted paths from everybody.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::domain::json::RawJson;
use crate::domain::redaction::{REDACTED, Redaction};

/// Returns a filter as its reader may see it. `redaction` is that of the reader: everything without `reveal`.
pub(crate) fn shown_filter<'a>(filter: &'a RawJson, redaction: &Redaction) -> Cow<'a, RawJson> {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(filter.as_str()) else { return Cow::Borrowed(filter) };
    let mut is_changed = hide(&mut fields, redaction);
    if let Some(Value::Object(excluded)) = fields.get_mut("not") {
        is_changed |= hide(excluded, redaction);
    }
    match RawJson::of(&fields) {
        Ok(shown) if is_changed => Cow::Owned(shown),
        _ => Cow::Borrowed(filter),
    }
}

/// Hides what must not be seen. Returns whether there was something.
fn hide(fields: &mut Map<String, Value>, redaction: &Redaction) -> bool {
    let hides_all = *redaction == Redaction::everything();
    let mut is_changed = false;
    if hides_all && let Some(text) = fields.get_mut("text") {
        *text = json!(REDACTED);
        is_changed = true;
    }
    if let Some(payload) = fields.get_mut("payload").filter(|_| hides_all) {
        // A path tells about payloads, too.
        *payload = json!({ REDACTED: REDACTED });
        is_changed = true;
    } else if let Some(Value::Object(payload)) = fields.get_mut("payload") {
        for (_, value) in payload.iter_mut().filter(|(path, _)| redaction.is_redacted(&format!("payload.{path}"))) {
            *value = json!(REDACTED);
            is_changed = true;
        }
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(filter: &str, redaction: &Redaction) -> Value {
        let filter = RawJson::of(&serde_json::from_str::<Value>(filter).unwrap()).unwrap();
        serde_json::from_str(shown_filter(&filter, redaction).as_str()).unwrap()
    }

    const FILTER: &str = r#"{"status": "FAILED", "text": "declined", "payload": {"card.number": "42", "order": 17},
                             "not": {"payload": {"card.number": "43"}, "event_type": "test"}}"#;

    #[test]
    fn contents_are_hidden_from_those_who_may_not_see_them() {
        let hidden = json!({"[redacted]": "[redacted]"});
        assert_eq!(
            shown(FILTER, &Redaction::everything()),
            json!({"status": "FAILED", "text": "[redacted]", "payload": hidden,
                   "not": {"payload": hidden, "event_type": "test"}})
        );
    }

    #[test]
    fn redacted_paths_are_hidden_from_everybody() {
        let redaction = Redaction::parse(&["payload.card.*".to_owned()]).unwrap();
        assert_eq!(
            shown(FILTER, &redaction),
            json!({"status": "FAILED", "text": "declined", "payload": {"card.number": "[redacted]", "order": 17},
                   "not": {"payload": {"card.number": "[redacted]"}, "event_type": "test"}})
        );
    }

    #[test]
    fn other_filters_are_shown_as_they_are() {
        for filter in ["{}", r#"{"tags": ["a"], "since": "2026-11-18T00:00:00Z"}"#] {
            assert_eq!(shown(filter, &Redaction::everything()), serde_json::from_str::<Value>(filter).unwrap());
        }
    }
}
