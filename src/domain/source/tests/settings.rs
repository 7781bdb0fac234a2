//! Settings, presets and changes.

use serde_json::json;

use super::examples::all;
use super::*;

#[test]
fn settings_survive_serialisation_and_presets_fill_them_in() {
    for provider in ["github", "stripe", "slack", "shopify", "standard", "gitlab", "gitea", "linear"] {
        let spec = source(&json!({"name": "a", "provider": provider, "verify": {"secret": WHSEC}}));
        assert!(spec.event_type_from.is_some() && spec.idempotency_key_from.is_some(), "{provider}");
        assert_eq!(SourceSpec::parse(&spec.to_json()), Ok(spec));
    }
    for example in all() {
        let mut given = json!({"name": "a", "verify": example.verify, "tags": ["t"], "labels": {"a": "b"}});
        given["verify"]["secret"] = example.secret.into();
        let spec = source(&given);
        assert_eq!(SourceSpec::parse(&spec.to_json()), Ok(spec));
    }
}

#[test]
fn own_settings_win_over_those_of_the_provider() {
    let spec = source(&json!({
        "name": "a", "provider": "github", "event_type_from": {"path": "action"}, "respond": {"status": 204},
        "verify": {"scheme": "hmac", "header": "X-Hub-Signature", "algorithm": "sha1", "prefix": "sha1=", "secret": "s"},
    }));
    assert_eq!(spec.verify.scheme(), "hmac");
    let json = spec.to_json();
    assert_eq!(json["event_type_from"], json!({"path": "action"}));
    assert_eq!(json["idempotency_key_from"], json!({"header": "X-GitHub-Delivery"}));
    assert_eq!(json["respond"]["status"], 204);
    let spec = source(&json!({"name": "a", "provider": "stripe", "verify": {"tolerance_seconds": 60, "secret": "s"}}));
    assert_eq!(spec.to_json()["verify"]["tolerance_seconds"], 60);
}

#[test]
fn all_errors_are_reported_at_once() {
    let refused = |value: Value| names(SourceSpec::parse_new(fields(&value)).unwrap_err());
    let errors = refused(json!({
        "name": "waybill.x", "provider": "github", "verify": {"scheme": "hmac", "algorithm": "md5", "username": "u"},
        "event_type_from": {"header": "a b"}, "idempotency_key_from": {"value": "x"}, "tags": "a,b",
        "labels": {"content_type": "x", "a": 1}, "respond": {"status": 302, "body": ""}, "colour": "red",
    }));
    let expected = [
        "name",
        "verify.header",
        "verify.algorithm",
        "verify.username",
        "event_type_from.header",
        "idempotency_key_from.value",
        "tags",
        "labels.a",
        "labels.content_type",
        "respond.status",
        "respond.body",
        "colour",
    ];
    assert_eq!(errors, expected);
    assert_eq!(refused(json!({})), ["name", "verify"]);
    assert_eq!(refused(json!({"name": "a", "provider": "nobody", "verify": {"secret": "s"}})), ["provider"]);
    assert_eq!(refused(json!({"name": "a", "verify": {}})), ["verify.scheme"]);
    assert_eq!(refused(json!({"name": "a", "provider": "github"})), ["verify.secret"]);
    assert_eq!(refused(json!({"name": "a", "verify": {"scheme": "none", "secret": "x"}})), ["verify.secret"]);
    assert_eq!(refused(json!({"name": "a", "provider": "standard", "verify": {"secret": "x"}})), ["verify.secret"]);
    assert_eq!(refused(json!({"name": "a", "provider": "github", "verify": {"secret": 7}})), ["verify.secret"]);
    for from in [json!({}), json!({"header": "a", "path": "b"}), json!("a")] {
        let verify = json!({"scheme": "none"});
        assert_eq!(refused(json!({"name": "a", "verify": verify, "event_type_from": from})), ["event_type_from"]);
    }
}

#[test]
fn a_change_merges_the_settings_of_the_scheme_and_keeps_the_scheme() {
    let spec = source(&json!({"name": "a", "provider": "stripe", "tags": ["t"], "verify": {"secret": "s"}}));
    let change = |changes: Value| SourceSpec::changed(spec.to_json(), fields(&changes)).map(|spec| spec.to_json());
    let changed = change(json!({"verify": {"tolerance_seconds": 60}, "name": "b", "tags": null})).unwrap();
    assert_eq!((&changed["name"], &changed["tags"]), (&json!("b"), &json!([])));
    assert_eq!(changed["verify"]["tolerance_seconds"], 60);
    assert_eq!(change(json!({})).unwrap(), spec.to_json());
    assert_eq!(change(json!({"verify": spec.to_json()["verify"], "provider": "stripe"})).unwrap(), spec.to_json());
    assert_eq!(change(json!({"event_type_from": null})).unwrap()["event_type_from"], json!({"path": "type"}));
    let refused = |changes: Value| names(change(changes).unwrap_err());
    assert_eq!(refused(json!({"provider": null})), ["provider"]);
    let both = json!({"verify": {"scheme": "none", "secret": "x"}});
    assert_eq!(refused(both), ["verify.scheme", "verify.secret"]);
    assert_eq!(refused(json!({"verify": {"header": "X"}})), ["verify.header"]);
    let own = source(&json!({
        "name": "a", "provider": "stripe", "verify": {"scheme": "token", "header": "X", "secret": "s"},
    }));
    let changed = SourceSpec::changed(own.to_json(), fields(&json!({"verify": null})));
    assert_eq!(names(changed.unwrap_err()), ["verify.scheme"], "the default is the scheme of the provider");
}

#[test]
fn a_secret_is_not_in_debug_output_or_errors() {
    let (_, secret) = SourceSpec::parse_new(fields(&json!({
        "name": "a", "provider": "github", "verify": {"secret": "s3cret"},
    })))
    .unwrap();
    assert_eq!(format!("{secret:?}"), "Some(SourceSecret(…))");
    let refused = json!({"name": "a", "provider": "standard", "verify": {"secret": "s3cret"}});
    assert!(!format!("{:?}", SourceSpec::parse_new(fields(&refused))).contains("s3cret"));
}

#[test]
fn a_header_that_carries_a_secret_is_no_type_and_no_key() {
    let refused = |value: Value| names(SourceSpec::parse_new(fields(&value)).unwrap_err());
    let token = json!({"scheme": "token", "header": "X-Gitlab-Token", "secret": "s"});
    let from = json!({"header": "x-gitlab-token"});
    let both = ["event_type_from.header", "idempotency_key_from.header"];
    let given = json!({"name": "a", "verify": token, "event_type_from": from, "idempotency_key_from": from});
    assert_eq!(refused(given), both);
    for header in ["Authorization", "proxy-authorization", "COOKIE"] {
        let from = json!({"header": header});
        let given = json!({
            "name": "a", "verify": {"scheme": "none"}, "event_type_from": from, "idempotency_key_from": from,
        });
        assert_eq!(refused(given), both);
    }
    let stored = source(&json!({"name": "a", "verify": token, "event_type_from": {"header": "X-Kind"}})).to_json();
    let changed = |changes: Value| SourceSpec::changed(stored.clone(), fields(&changes));
    assert_eq!(names(changed(json!({"idempotency_key_from": from})).unwrap_err()), both[1..]);
    assert_eq!(names(changed(json!({"verify": {"header": "x-kind"}})).unwrap_err()), both[..1]);
    assert!(changed(json!({"verify": {"header": "X-Other"}})).is_ok());
}
