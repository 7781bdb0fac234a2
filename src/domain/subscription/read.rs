//! Parsing of subscriptions.

use serde_json::{Map, Value};

use super::reader::{SpecFields, object, take_choice, take_patterns, take_tags};
use super::{RetryOn, SubscriptionSpec, headers};
use crate::domain::address::check_syntax;
use crate::domain::backoff::Backoff;
use crate::domain::filter::Filter;
use crate::domain::invalid::Invalid;
use crate::domain::limits;
use crate::domain::path::JsonPath;
use crate::domain::seconds::Seconds;
use crate::domain::transform::Transform;

impl SubscriptionSpec {
    /// Parses a subscription, or returns all errors in it. `null` means absent, and an absent field
    /// has its default.
    pub fn parse(fields: &Map<String, Value>) -> Result<Self, Vec<Invalid>> {
        let mut fields = SpecFields::of_object(fields);
        let url = fields
            .required("url", |fields, name| fields.parse_text(name, |url| check_syntax(url).map(|_| url.to_owned())));
        let default = Self::new(url.unwrap_or_default());
        let spec = Self {
            name: fields.text("name", limits::SUBSCRIPTION_NAME_CHARS),
            url: default.url,
            method: take_choice(&mut fields, "method").unwrap_or(default.method),
            event_types: take_patterns(&mut fields, "event_types").unwrap_or_default(),
            tags: take_tags(&mut fields, "tags").unwrap_or_default(),
            labels: fields.labels("labels").unwrap_or_default(),
            filter: fields.parse("filter", Filter::parse),
            headers: fields.parse_all("headers", |value| headers::parse(object(value)?)).unwrap_or_default(),
            timeout_ms: fields.integer("timeout_ms", limits::TIMEOUT_MS).unwrap_or(default.timeout_ms),
            max_attempts: fields.integer("max_attempts", limits::MAX_ATTEMPTS).unwrap_or(default.max_attempts),
            backoff: fields.parse("backoff", parse_backoff).unwrap_or(default.backoff),
            retry_on: fields.parse("retry_on", RetryOn::parse).unwrap_or(default.retry_on),
            ordering: take_choice(&mut fields, "ordering").unwrap_or(default.ordering),
            on_exhausted: take_choice(&mut fields, "on_exhausted").unwrap_or(default.on_exhausted),
            ordering_key_path: fields.parse_text("ordering_key_path", JsonPath::parse),
            max_concurrency: fields
                .integer("max_concurrency", limits::MAX_CONCURRENCY)
                .unwrap_or(default.max_concurrency),
            rate_per_second: fields.number("rate_per_second", limits::RATE_PER_SECOND),
            transform: fields.parse("transform", Transform::parse),
        };
        fields.finish_object().map(|()| spec)
    }
}

fn parse_backoff(value: &Value) -> Result<Backoff, Invalid> {
    const EXPECTED: &str =
        "must be an object with a strategy (fixed, exponential or schedule) and its numbers, and nothing else";
    let backoff: Backoff = serde_json::from_value(value.clone()).map_err(|_| Invalid::new("", EXPECTED))?;
    backoff.check()?;
    Ok(backoff.with_floor(Seconds::whole(limits::BACKOFF_FLOOR_SECONDS)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::backoff::Jitter;
    use crate::domain::subscription::{Method, OnExhausted, Ordering};

    fn parse(value: Value) -> Result<SubscriptionSpec, Vec<String>> {
        let fields = |errors: Vec<Invalid>| errors.into_iter().map(|error| error.field).collect();
        SubscriptionSpec::parse(value.as_object().unwrap()).map_err(fields)
    }

    fn with(field: &str, value: Value) -> Result<SubscriptionSpec, Vec<String>> {
        let mut fields = json!({"url": "https://a.example/in"});
        fields[field] = value;
        parse(fields)
    }

    #[test]
    fn only_the_url_is_required_and_null_counts_as_absent() {
        let spec =
            parse(json!({"url": "https://a.example/in", "name": null, "backoff": null, "filter": null})).unwrap();
        assert_eq!(spec, SubscriptionSpec::new("https://a.example/in"));
        assert_eq!(spec.backoff, Backoff::Schedule { seconds: [5, 30, 300].map(Seconds::whole).to_vec() });
        assert_eq!((spec.timeout_ms, spec.max_attempts, spec.max_concurrency), (10_000, 4, 16));
        assert_eq!(parse(json!({"url": null})).unwrap_err(), ["url"]);
        assert_eq!(parse(json!({})).unwrap_err(), ["url"]);
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let errors = parse(json!({
            "url": "ftp://a.example", "name": 5, "method": "GET", "event_types": ["a", 5, "*b"], "tags": [1],
            "labels": {"a": 1, "b": "x"}, "filter": {"payload.a": {"$gt": true}}, "headers": {"Host": "x", "te": "y"},
            "timeout_ms": 99, "max_attempts": 101, "backoff": {"strategy": "fixed", "seconds": -1},
            "retry_on": ["5xx", 7], "ordering": "fifo", "on_exhausted": "stop", "ordering_key_path": "a..b",
            "max_concurrency": 1.5, "rate_per_second": 0, "transform": {}, "colour": "red",
        }));
        let expected = [
            "url",
            "name",
            "method",
            "event_types[1]",
            "event_types[2]",
            "tags",
            "labels.a",
            "filter.payload.a.$gt",
            "headers.Host",
            "headers.te",
            "timeout_ms",
            "max_attempts",
            "backoff.seconds",
            "retry_on[1]",
            "ordering",
            "on_exhausted",
            "ordering_key_path",
            "max_concurrency",
            "rate_per_second",
            "transform",
            "colour",
        ];
        assert_eq!(errors.unwrap_err(), expected);
    }

    #[test]
    fn choices_are_case_sensitive() {
        assert_eq!(with("method", json!("PUT")).unwrap().method, Method::Put);
        assert_eq!(with("ordering", json!("by_key")).unwrap().ordering, Ordering::ByKey);
        assert_eq!(with("on_exhausted", json!("block")).unwrap().on_exhausted, OnExhausted::Block);
        assert!(with("method", json!("put")).is_err());
    }

    #[test]
    fn types_and_tags_are_lists_without_duplicates() {
        assert_eq!(with("event_types", json!(["user.*"])), with("event_types", json!(["user.*", "user.*"])));
        assert_eq!(with("tags", json!([" a", "b", "a"])), with("tags", json!(["a", "b"])));
        assert_eq!(with("tags", json!([])), parse(json!({"url": "https://a.example/in"})));
        for field in ["event_types", "tags"] {
            for bad in [json!("a"), json!("a,b"), json!({"a": "b"}), json!(5)] {
                assert_eq!(with(field, bad).unwrap_err(), [field]);
            }
        }
        assert!(with("event_types", json!(vec!["a"; 101])).is_err());
    }

    #[test]
    fn a_url_is_http_or_https_without_whitespace() {
        for fine in ["http://a", "HTTPS://A.example:8443/x?y=1", "https://ä.example"] {
            assert!(with("url", json!(fine)).is_ok(), "{fine}");
        }
        for bad in [
            "",
            "a.example",
            "//a",
            "http:/a",
            "httpx://a",
            "http://a b",
            "http://a\n",
            "http://a\0",
            "ht",
            "é",
            "http://a#z",
        ] {
            assert_eq!(with("url", json!(bad)).unwrap_err(), ["url"], "{bad:?}");
        }
        assert!(with("url", json!(format!("http://{}", "a".repeat(2041)))).is_ok());
        assert!(with("url", json!(format!("http://{}", "a".repeat(2042)))).is_err());
    }

    #[test]
    fn jitter_without_a_floor_gets_one_second_or_its_base_if_that_is_less() {
        for (base, floor) in [(5.0, 1.0), (0.5, 0.5), (0.0, 0.0)] {
            let backoff = json!({"strategy": "exponential", "base_seconds": base, "max_seconds": 60, "jitter": "full"});
            let expected = Backoff::Exponential {
                base_seconds: Seconds::nearest(base),
                max_seconds: Seconds::whole(60),
                jitter: Jitter::Full,
                floor_seconds: Some(Seconds::nearest(floor)),
            };
            assert_eq!(with("backoff", backoff).unwrap().backoff, expected);
        }
    }

    #[test]
    fn strings_that_cannot_be_stored_are_refused() {
        for field in ["name", "ordering_key_path"] {
            assert_eq!(with(field, json!("a\0b")).unwrap_err(), [field]);
        }
        assert_eq!(with("tags", json!(["a\0b"])).unwrap_err(), ["tags"]);
        assert_eq!(with("event_types", json!(["a\0b"])).unwrap_err(), ["event_types[0]"]);
        assert!(with("labels", json!({"a": "x\0"})).is_err());
        assert!(with("labels", json!({"a\0": "x"})).is_err());
    }
}
