//! Settings that are refused, by their names.

use serde_json::{Value, json};

use super::{github_source, path_of};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_in_a_source_is_named() {
    let app = App::start().await;
    let post = async |body: Value| app.post("/sources", &body).await;
    post(json!({})).await.names(&["name", "verify"]);
    post(json!({"name": "a", "provider": "github"})).await.names(&["verify.secret"]);
    post(json!({"name": "a", "provider": "nobody", "verify": {"secret": "s"}})).await.names(&["provider"]);
    post(json!({
        "name": "", "provider": "slack", "verify": {"scheme": "hmac", "prefix": "é"}, "tags": ["a,b"], "colour": 1,
        "respond": {"status": 500}, "event_type_from": {"path": "a..b"}, "is_active": "yes",
    }))
    .await
    .names(&[
        "colour",
        "event_type_from.path",
        "is_active",
        "name",
        "respond.status",
        "tags",
        "verify.header",
        "verify.prefix",
    ]);
    let with = |field: &str, value: Value| {
        let mut body = json!({"name": "a", "verify": {"scheme": "none"}});
        body[field] = value;
        body
    };
    for (field, value, named) in [
        ("verify", json!("none"), "verify"),
        ("verify", json!({"scheme": "md5"}), "verify.scheme"),
        ("verify", json!({"scheme": "github", "header": "X", "secret": "s"}), "verify.header"),
        ("verify", json!({"scheme": "basic", "secret": "s", "username": "a:b"}), "verify.username"),
        ("verify", json!({"scheme": "slack", "secret": "s", "tolerance_seconds": 0}), "verify.tolerance_seconds"),
        ("name", json!("waybill.mine"), "name"),
        ("event_type_from", json!({"value": "waybill.mine"}), "event_type_from.value"),
        ("idempotency_key_from", json!({"value": "x"}), "idempotency_key_from.value"),
        ("labels", json!({"content_type": "x"}), "labels.content_type"),
        ("respond", json!({"status": 204, "body": "x"}), "respond.body"),
        ("respond", json!({"content_type": "a/b\r\nx: y"}), "respond.content_type"),
    ] {
        post(with(field, value)).await.names(&[named]);
    }
    let labels: serde_json::Map<String, Value> = (0..31).map(|n| (format!("l{n}"), json!(""))).collect();
    post(with("labels", labels.into())).await.names(&["labels"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.sources").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheme_a_provider_and_a_secret_cannot_be_patched() {
    let app = App::start().await;
    let source = github_source(&app).await;
    let patch = async |body: Value| app.patch(&path_of(&source), &body).await;
    patch(json!({"provider": "stripe"})).await.names(&["provider"]);
    patch(json!({"verify": {"scheme": "none"}})).await.names(&["verify.scheme"]);
    patch(json!({"verify": {"secret": "x"}})).await.names(&["verify.secret"]);
    patch(json!({"path": "/in/x"})).await.names(&["path"]);
    patch(json!({"name": null})).await.names(&["name"]);
    assert_eq!(app.get(&path_of(&source)).await.expect(200).json(), source);
}
