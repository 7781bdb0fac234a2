//! `PATCH /keys/{id}`. `tests/api/limits` has what a rate does.

use serde_json::{Value, json};

use crate::support::App;

const RATE: &str = "publishes_per_second";

/// Changes a key. Returns its rate and its burst.
async fn update(app: &App, id: i64, change: Value) -> (Value, Value) {
    let key = app.patch(&format!("/keys/{id}"), &change).await.expect(200).json();
    (key[RATE].clone(), key["publish_burst"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_changes_and_null_removes() {
    let app = App::with_keys().await;
    let id = app.make_key(json!({"scopes": ["publish"]})).await.id;
    assert_eq!(update(&app, id, json!({RATE: 5, "publish_burst": 20})).await, (json!(5), json!(20)));
    assert_eq!(update(&app, id, json!({RATE: 7})).await, (json!(7), json!(20)));
    assert_eq!(update(&app, id, json!({"publish_burst": 30})).await, (json!(7), json!(30)));
    assert_eq!(update(&app, id, json!({})).await, (json!(7), json!(30)));
    assert_eq!(update(&app, id, json!({"publish_burst": null})).await, (json!(7), json!(null)));
    assert_eq!(update(&app, id, json!({"publish_burst": 9})).await, (json!(7), json!(9)));
    assert_eq!(update(&app, id, json!({RATE: null})).await, (json!(null), json!(null)), "the burst goes with the rate");
    let listed = app.get("/keys").await.expect(200).json();
    assert_eq!((&listed["keys"][1]["id"], &listed["keys"][1][RATE]), (&json!(id), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_audited_with_what_was_before() {
    let app = App::with_keys().await;
    let key = json!({"name": "shop", "scopes": ["publish"], RATE: 5});
    let id = app.make_key(key).await.id;
    update(&app, id, json!({RATE: 5, "publish_burst": 20})).await;
    update(&app, id, json!({"publish_burst": 20})).await;
    let entries = app.get("/audit?action=key.updated").await.expect(200).json()["entries"].clone();
    assert_eq!(entries.as_array().map(Vec::len), Some(1), "what changes nothing is not recorded: {entries}");
    let detail = json!({"name": "shop", "changes": {"publish_burst": {"from": null, "to": 20}}});
    assert_eq!((&entries[0]["actor"], &entries[0]["detail"]), (&json!("the admin"), &detail));
    assert_eq!(entries[0]["subject"], json!({"kind": "key", "id": id}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_and_changes_nothing() {
    let app = App::with_keys().await;
    let id = app.make_key(json!({"scopes": ["publish"]})).await.id;
    let path = format!("/keys/{id}");
    for (change, named) in [
        (json!({RATE: 0}), RATE),
        (json!({RATE: 1_000_001}), RATE),
        (json!({RATE: "5"}), RATE),
        (json!({RATE: 5, "publish_burst": 0}), "publish_burst"),
        (json!({"publish_burst": 5}), "publish_burst"),
        (json!({RATE: null, "publish_burst": 5}), "publish_burst"),
        (json!({RATE: 5, "scopes": ["admin"]}), "scopes"),
        (json!({RATE: 5, "name": "other"}), "name"),
    ] {
        app.patch(&path, &change).await.names(&[named]);
    }
    app.patch(&format!("{path}?force=true"), &json!({RATE: 5})).await.names(&["force"]);
    let operator = app.holder_of("operate").await;
    operator.patch(&path, &json!({RATE: 5})).await.problem(403, "scope_missing");
    app.patch("/keys/4711", &json!({RATE: 5})).await.problem(404, "key_not_found");
    app.team("north").await.patch(&path, &json!({RATE: 5})).await.problem(404, "key_not_found");
    assert_eq!(update(&app, id, json!({})).await, (json!(null), json!(null)));
    app.post_empty(&format!("{path}/revoke")).await.expect(200);
    app.patch(&path, &json!({RATE: 5})).await.problem(409, "key_not_in_use");
}
