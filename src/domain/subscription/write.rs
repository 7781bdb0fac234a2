//! Serialising of subscriptions.

use serde_json::{Map, Value, json};

use super::SubscriptionSpec;
use crate::domain::encryption::StoredText;
use crate::domain::filter::Filter;
use crate::domain::transform::Transform;

impl SubscriptionSpec {
    /// Returns every field with its effective value. [`SubscriptionSpec::parse`] of the result gives
    /// the same subscription.
    pub fn to_json(&self) -> Map<String, Value> {
        let event_types: Vec<String> = self.event_types.iter().map(ToString::to_string).collect();
        let headers: Map<String, Value> =
            self.headers.iter().map(|(name, value)| (name.clone(), StoredText::to_json(value))).collect();
        let fields = [
            ("name", json!(self.name)),
            ("url", json!(self.url)),
            ("method", json!(self.method.as_str())),
            ("event_types", json!(event_types)),
            ("tags", json!(self.tags.as_slice())),
            ("labels", json!(self.labels)),
            ("filter", json!(self.filter.as_ref().map(Filter::to_json))),
            ("headers", headers.into()),
            ("timeout_ms", json!(self.timeout_ms)),
            ("max_attempts", json!(self.max_attempts)),
            ("backoff", json!(self.backoff)),
            ("retry_on", self.retry_on.to_json()),
            ("ordering", json!(self.ordering.as_str())),
            ("on_exhausted", json!(self.on_exhausted.as_str())),
            ("ordering_key_path", json!(self.ordering_key_path.as_ref().map(ToString::to_string))),
            ("max_concurrency", json!(self.max_concurrency)),
            ("rate_per_second", json!(self.rate_per_second)),
            ("transform", json!(self.transform.as_ref().map(Transform::to_json))),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn fields()(
            name in prop::option::of("\\PC{1,20}"),
            method in prop_oneof![Just("POST"), Just("PUT")],
            event_types in prop::collection::vec("[a-c]{1,2}(\\.[a-c]{1,2}){0,2}(\\.\\*)?", 0..5),
            tags in prop::collection::vec("[a-z]{1,5}", 0..5),
            labels in prop::collection::btree_map("\\PC{1,5}", "\\PC{0,5}", 0..4),
            filter in prop_oneof![
                Just(Value::Null),
                any::<i64>().prop_map(|n| json!({"payload.a": {"$gt": n}, "$not": {"tags": "x"}})),
                any::<String>().prop_map(|s| json!({"$or": [{"event_type": s.replace('\0', "")}, {}]})),
            ],
            header in prop::option::of("[ -~]{0,20}"),
            timeout_ms in 100..=60_000i32,
            max_attempts in 1..=100i32,
            backoff in prop_oneof![
                Just(Value::Null),
                (0..1000i64).prop_map(|n| json!({"strategy": "fixed", "seconds": n})),
                (0.0..1000.0f64).prop_map(|n| json!({"strategy": "schedule", "seconds": [n, 0.5]})),
                (0..9i64, 9..99i64, any::<bool>()).prop_map(|(base, max, full)| json!({
                    "strategy": "exponential", "base_seconds": base, "max_seconds": max,
                    "jitter": if full { "full" } else { "none" },
                })),
            ],
            ordering in prop_oneof![Just("none"), Just("by_key")],
            path in prop::option::of("[a-z]{1,3}(\\.[a-z0-9]{1,3}){0,3}"),
            rate in prop::option::of(0.01..=10_000.0f64),
            transform in prop_oneof![
                Just(Value::Null),
                Just(json!({"keep": ["a.b"], "drop": ["c"], "envelope": true})),
                Just(json!({"template": "{{ payload.a }}", "content_type": "text/plain"})),
                Just(json!({"cloudevents": "binary"})),
            ],
        ) -> Map<String, Value> {
            let headers = header.map(|value| json!({"X-A": value}));
            let fields = json!({
                "url": "https://a.example", "name": name, "method": method, "event_types": event_types, "tags": tags,
                "labels": labels, "filter": filter, "headers": headers, "timeout_ms": timeout_ms,
                "max_attempts": max_attempts, "backoff": backoff, "ordering": ordering, "ordering_key_path": path,
                "rate_per_second": rate, "transform": transform,
            });
            fields.as_object().cloned().unwrap()
        }
    }

    proptest! {
        #[test]
        fn a_subscription_survives_serialisation(fields in fields()) {
            let spec = SubscriptionSpec::parse(&fields).unwrap();
            let written = spec.to_json();
            prop_assert_eq!(SubscriptionSpec::parse(&written), Ok(spec));
        }
    }

    #[test]
    fn every_field_is_written_with_its_effective_value() {
        let written = Value::from(SubscriptionSpec::new("http://a").to_json());
        let expected = json!({
            "name": null, "url": "http://a", "method": "POST", "event_types": [], "tags": [], "labels": {},
            "filter": null, "headers": {}, "timeout_ms": 10_000, "max_attempts": 4,
            "backoff": {"strategy": "schedule", "seconds": [5, 30, 300]},
            "retry_on": ["408", "425", "429", "5xx", "timeout", "connection"], "ordering": "none", "on_exhausted": "skip",
            "ordering_key_path": null, "max_concurrency": 16, "rate_per_second": null, "transform": null,
        });
        assert_eq!(written, expected);
    }
}
