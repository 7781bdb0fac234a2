//! Changes of stored subscriptions.

use serde_json::{Map, Value};
use url::Url;

use super::{SubscriptionSpec, headers};
use crate::domain::invalid::Invalid;

impl SubscriptionSpec {
    /// Returns the subscription that has `changes` in the place of its `present` fields, or all errors in it.
    /// `null` restores the default of a field.
    ///
    /// Headers are merged by name, because a client cannot read the values that it wants to keep. A name matches in
    /// any case. A value adds or replaces a header, and `null` removes one. Values that are kept stay as they are
    /// stored, so no key is needed to keep an encrypted one. They are kept only for the origin that they were given
    /// for: who may change a URL may not read them, and could otherwise have them sent to a server of their own.
    pub(crate) fn changed(
        mut present: Map<String, Value>,
        mut changes: Map<String, Value>,
    ) -> Result<Self, Vec<Invalid>> {
        let mut kept = headers::of_stored(present.remove("headers").as_ref());
        match changes.get_mut("headers") {
            Some(Value::Object(changed)) => {
                kept.retain(|name, _| !changed.keys().any(|changed| changed.eq_ignore_ascii_case(name)));
                changed.retain(|_, value| !value.is_null());
            }
            Some(_) => kept.clear(),
            None => {}
        }
        let url = present.get("url").cloned();
        present.extend(changes);
        let mut spec = Self::parse(&present)?;
        if !kept.is_empty() && !url.as_ref().and_then(Value::as_str).is_some_and(|url| has_same_origin(url, &spec.url))
        {
            return Err(vec![Invalid::new("headers", SENT_ELSEWHERE)]);
        }
        spec.headers.append(&mut kept);
        headers::check_count(spec.headers.len()).map_err(|error| vec![error.inside("headers")])?;
        Ok(spec)
    }
}

const SENT_ELSEWHERE: &str = "must be given again, or null, when the URL leads to another host: the stored values are \
                              not sent there";

/// Returns whether two URLs have the same scheme, host and port.
fn has_same_origin(one: &str, other: &str) -> bool {
    // Equal ones need not be read: a stored URL that could not be would block every change.
    one == other
        || matches!((Url::parse(one), Url::parse(other)), (Ok(one), Ok(other)) if one.origin() == other.origin())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::limits;

    fn change(present: Value, changes: Value) -> Result<Value, Vec<String>> {
        let fields = |value: Value| value.as_object().cloned().unwrap();
        let names = |errors: Vec<Invalid>| errors.into_iter().map(|error| error.field).collect::<Vec<_>>();
        SubscriptionSpec::changed(fields(present), fields(changes)).map(|spec| spec.to_json().into()).map_err(names)
    }

    fn change_headers(present: Value, changes: Value) -> Result<Value, Vec<String>> {
        let present = json!({"url": "http://a", "headers": present});
        change(present, json!({"headers": changes})).map(|spec| spec["headers"].clone())
    }

    #[test]
    fn a_field_is_replaced_and_null_restores_its_default() {
        let present = json!({"url": "http://a", "name": "a", "timeout_ms": 500, "headers": {"X-A": "a"}});
        let changed = change(present, json!({"name": "b", "timeout_ms": null})).unwrap();
        assert_eq!((&changed["name"], &changed["timeout_ms"]), (&json!("b"), &json!(10_000)));
        assert_eq!(changed["headers"], json!({"X-A": "a"}));
    }

    #[test]
    fn headers_are_merged_by_name_in_any_case() {
        let present = json!({"Authorization": "a", "X-Other": "b"});
        let change = |changes| change_headers(present.clone(), changes).unwrap();
        assert_eq!(change(json!({})), present);
        assert_eq!(change(json!({"X-New": "c", "X-Unknown": null}))["X-New"], "c");
        assert_eq!(change(json!({"AUTHORIZATION": null})), json!({"X-Other": "b"}));
        assert_eq!(change(json!({"authorization": "c"})), json!({"authorization": "c", "X-Other": "b"}));
        assert_eq!(change(Value::Null), json!({}));
    }

    #[test]
    fn an_encrypted_header_is_kept_as_it_is_stored() {
        let encrypted = json!({"encrypted": "enc:v1:0011223344556677:AAAA"});
        let present = json!({"X-A": encrypted, "X-B": encrypted});
        let changed = change_headers(present, json!({"X-B": "plain"})).unwrap();
        assert_eq!(changed, json!({"X-A": encrypted, "X-B": "plain"}));
    }

    #[test]
    fn a_header_is_not_kept_for_another_origin() {
        let present = json!({"url": "https://a.example/x", "headers": {"X-A": "a", "X-B": "b"}});
        let headers = |changes| change(present.clone(), changes).map(|spec| spec["headers"].clone());
        for url in ["https://b.example/x", "http://a.example/x", "https://a.example:444/x", "https://a.example.b/x"] {
            for some in [
                json!({ "url": url }),
                json!({"url": url, "headers": {"x-a": "c"}}),
                json!({"url": url, "headers": {}}),
            ] {
                assert_eq!(headers(some).unwrap_err(), ["headers"], "{url}");
            }
            let all = json!({"url": url, "headers": {"x-a": "c", "X-B": null}});
            assert_eq!(headers(all).unwrap(), json!({"x-a": "c"}));
            assert_eq!(headers(json!({"url": url, "headers": null})).unwrap(), json!({}));
        }
        for url in ["https://a.example/x", "https://A.example:443/y?z"] {
            assert_eq!(headers(json!({ "url": url })).unwrap(), present["headers"], "{url}");
        }
    }

    #[test]
    fn a_client_cannot_write_an_encrypted_header() {
        let encrypted = json!({"X-A": {"encrypted": "enc:v1:0011223344556677:AAAA"}});
        assert_eq!(change_headers(json!({}), encrypted).unwrap_err(), ["headers.X-A"]);
        assert_eq!(change_headers(json!({}), json!("X-A")).unwrap_err(), ["headers"]);
    }

    #[test]
    fn a_header_that_is_changed_under_two_spellings_is_refused() {
        let changes = json!({"Authorization": "a", "authorization": "b"});
        assert_eq!(change_headers(json!({"AUTHORIZATION": "c"}), changes).unwrap_err().len(), 1);
    }

    #[test]
    fn kept_headers_count_towards_the_limit() {
        let many = |prefix: &str, count: usize| -> Value {
            (0..count).map(|n| (format!("{prefix}{n}"), json!("x"))).collect::<Map<_, _>>().into()
        };
        let present = many("X-A-", limits::HEADERS - 1);
        assert!(change_headers(present.clone(), many("X-B-", 1)).is_ok());
        assert_eq!(change_headers(present, many("X-B-", 2)).unwrap_err(), ["headers"]);
    }
}
