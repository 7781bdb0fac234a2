//! `POST /keys`.

use serde_json::{Value, json};

use crate::support::work::time;
use crate::support::{App, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_and_only_its_hash_is_stored() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let fields = json!({
        "name": "render workers", "scopes": ["work", "read"], "tag_patterns": ["photos.*", "mail"],
        "expires_at": "2099-01-31T00:00:00Z",
    });
    let mut made = app.post("/keys", &fields).await.expect(201).json();
    let key = made.as_object_mut().expect("an object").remove("key").expect("a key");
    let key = key.as_str().expect("text");
    assert!(key.len() == 39 && key.starts_with("wb_"), "{key}");
    let expected = json!({
        "id": made["id"], "name": "render workers", "namespace": "default", "prefix": &key[..9],
        "scopes": ["work", "read"], "tag_patterns": ["photos.*", "mail"], "secrets": 1, "sessions": 0,
        "expires_at": "2099-01-31T00:00:00.000000Z", "revoked_at": null, "last_used_at": null,
        "created_at": made["created_at"], "created_by": "the admin",
        "publishes_per_second": null, "publish_burst": null,
    });
    assert_eq!(made, expected);
    assert_eq!(time(&made["created_at"]).timestamp(), app.now().timestamp());
    let stored = "SELECT count(*) FROM waybill.api_keys k JOIN waybill.api_key_secrets s ON s.key_id = k.id \
         WHERE strpos(k::text || s::text, '{}') > 0";
    assert_eq!(database::count(&app.url, &stored.replace("{}", key)).await, 0);
    assert_eq!(database::count(&app.url, &stored.replace("{}", &key[..9])).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_required_from_the_first_one_on() {
    let app = App::start().await;
    app.get("/events").await.expect(200);
    let admin = app.make_key(json!({"scopes": ["admin"]})).await;
    let refused = app.get("/events").await;
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    refused.problem(401, "unauthenticated");
    app.holding(&admin).get("/events").await.expect(200);
    app.sending(&format!(" {} ", admin.key)).get("/events").await.expect(200);
}

/// Otherwise nobody could make another one.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_an_administrators() {
    let app = App::start().await;
    app.post("/keys", &json!({"name": "worker", "scopes": ["work"]})).await.names(&["scopes"]);
    app.get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_stay_required_when_none_is_left() {
    let app = App::with_keys().await;
    database::execute(&app.url, "DELETE FROM waybill.api_keys; UPDATE waybill.key_catalog SET generation = 7").await;
    app.engine().refresh_keys().await.expect("the database answers");
    app.get("/events").await.problem(401, "unauthenticated");
    app.as_stranger().get("/events").await.problem(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_on_a_server_without_keys_change_nothing() {
    let app = App::start().await;
    for credentials in ["nonsense", "wb_0123456789ABCDEFGHIJKLMNOPQRST4PMbyp"] {
        app.sending(credentials).get("/events").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_taken_until_its_key_is_revoked() {
    let app = App::with_keys().await;
    let fields = json!({"name": "billing", "scopes": ["publish"]});
    let first = app.make_key(fields.clone()).await;
    app.post("/keys", &fields).await.problem(409, "key_name_taken");
    app.post_empty(&format!("/keys/{}/revoke", first.id)).await.expect(200);
    app.make_key(fields).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_limit_of_keys_in_use() {
    let app = App::with_keys().await;
    let fill = "INSERT INTO waybill.api_keys (name, scopes, created_at, revoked_at) \
         SELECT 'k' || n, '{read}', now(), CASE WHEN n > 999 THEN now() END FROM generate_series(1, 1200) n";
    database::execute(&app.url, fill).await;
    let problem = app.post("/keys", &json!({"name": "one more", "scopes": ["read"]})).await;
    problem.problem(409, "too_many_keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_in_a_key_is_named() {
    let app = App::with_keys().await;
    app.post("/keys", &json!({})).await.names(&["name", "scopes"]);
    let wrong = json!({
        "name": " x", "scopes": ["fly"], "tag_patterns": ["a*b"], "expires_at": "2020-01-01T00:00:00Z", "colour": "red",
    });
    app.post("/keys", &wrong).await.names(&["name", "scopes", "tag_patterns", "expires_at", "colour"]);
    let scopes = |scopes: Value| json!({"name": "x", "scopes": scopes});
    for bad in [json!([]), json!("read"), json!([1]), json!(["read", "Read"])] {
        app.post("/keys", &scopes(bad)).await.names(&["scopes"]);
    }
    let limited = json!({"name": "x", "scopes": ["admin"], "tag_patterns": ["a"]});
    app.post("/keys", &limited).await.names(&["tag_patterns"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_keys").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_action_is_recorded_under_the_name_of_the_key() {
    let app = App::with_keys().await;
    let operator = app.make_key(json!({"name": "ann", "scopes": ["operate"]})).await;
    let operation = json!({"filter": {"tags": ["unused"]}});
    let started = app.holding(&operator).post("/events/cancel", &operation).await.expect(202).json();
    assert_eq!(started["actor"], "ann");
}
