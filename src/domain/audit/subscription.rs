//! What the audit log shows of a subscription: its settings and their changes, without header values, and its URL
//! only up to the first segment of its path. Long values, such as templates, are shown by their size.

use serde_json::{Map, Value, json};

use super::{MAX_VALUE_BYTES, bounded};
use crate::domain::address::masked;

/// Returns the settings of a subscription as they are shown. Settings that are not set are left out.
pub(crate) fn shown_settings(fields: &Map<String, Value>) -> Map<String, Value> {
    let is_set = |value: &Value| !matches!(value, Value::Null) && *value != json!([]) && *value != json!({});
    fields.iter().filter(|(_, value)| is_set(value)).map(|(name, value)| (name.clone(), shown(name, value))).collect()
}

/// Returns the fields that differ, each with the value before and after. Of headers, only names are shown.
pub(crate) fn changes_between(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let mut changes = Map::new();
    for (name, new) in after {
        let old = before.get(name).unwrap_or(&Value::Null);
        if old == new {
            continue;
        }
        let change = match name.as_str() {
            "headers" => changed_headers(old, new),
            _ => json!({"from": shown(name, old), "to": shown(name, new)}),
        };
        changes.insert(name.clone(), change);
    }
    changes
}

fn shown(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("headers", _) => json!(names(value)),
        ("url", Value::String(url)) => masked(url).into(),
        _ => bounded(value, MAX_VALUE_BYTES),
    }
}

/// Returns the names of the headers that were added, changed and removed.
fn changed_headers(old: &Value, new: &Value) -> Value {
    let value = |headers: &Value, name: &str| headers.get(name).cloned();
    let (old_names, new_names) = (names(old), names(new));
    let added: Vec<&&str> = new_names.iter().filter(|name| value(old, name).is_none()).collect();
    let is_changed = |name: &&&str| value(old, name).is_some_and(|old| Some(old) != value(new, name));
    let changed: Vec<&&str> = new_names.iter().filter(is_changed).collect();
    let removed: Vec<&&str> = old_names.iter().filter(|name| value(new, name).is_none()).collect();
    json!({"added": added, "changed": changed, "removed": removed})
}

fn names(headers: &Value) -> Vec<&str> {
    headers.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn changes_show_both_values_of_the_fields_that_differ() {
        let before = fields(json!({"name": "orders", "max_attempts": 3, "tags": ["a"]}));
        let after = fields(json!({"name": "orders", "max_attempts": 5, "tags": [], "filter": {"a": 1}}));
        let expected = json!({
            "max_attempts": {"from": 3, "to": 5}, "tags": {"from": ["a"], "to": []}, "filter": {"from": null, "to": {"a": 1}},
        });
        assert_eq!(Value::Object(changes_between(&before, &after)), expected);
        assert!(changes_between(&after, &after).is_empty());
    }

    #[test]
    fn of_headers_only_the_names_are_shown_and_of_a_url_only_its_beginning() {
        let before = fields(json!({
            "url": "https://a.example/hooks/s3cret", "headers": {"X-Kept": "s3cret", "X-Old": "s3cret", "X-New": "s3cret"},
        }));
        let after = fields(json!({
            "url": "https://a.example/hooks/s3cret2",
            "headers": {"X-Kept": "s3cret", "X-New": "s3cret2", "Authorization": "s3cret"},
        }));
        let changes = Value::Object(changes_between(&before, &after));
        assert_eq!(changes["url"], json!({"from": "https://a.example/hooks/…", "to": "https://a.example/hooks/…"}));
        let expected = json!({"added": ["Authorization"], "changed": ["X-New"], "removed": ["X-Old"]});
        assert_eq!(changes["headers"], expected);
        let shown = Value::Object(shown_settings(&after));
        assert_eq!(shown["headers"], json!(["Authorization", "X-Kept", "X-New"]));
        assert!(!format!("{changes}{shown}").contains("s3cret"));
    }

    #[test]
    fn settings_that_are_not_set_are_left_out_and_long_ones_are_shown_by_their_size() {
        let template = "x".repeat(MAX_VALUE_BYTES);
        let all = fields(json!({"name": null, "tags": [], "labels": {}, "max_attempts": 0, "transform": template}));
        let shown = Value::Object(shown_settings(&all));
        assert_eq!(shown, json!({"max_attempts": 0, "transform": {"omitted_bytes": MAX_VALUE_BYTES + 2}}));
    }
}
