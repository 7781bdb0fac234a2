//! `GET /keys`, and for how long keys are kept.

use serde_json::{Value, json};
use waybill::background::retention;

use crate::support::retention::by_default;
use crate::support::work::time;
use crate::support::{App, Options};

async fn key(app: &App, id: i64) -> Option<Value> {
    let page = app.get("/keys").await.expect(200).json();
    page["keys"].as_array().expect("keys").iter().find(|key| key["id"] == id).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_without_the_keys_themselves() {
    let app = App::with_keys().await;
    let made = app.make_key(json!({"scopes": ["read"]})).await;
    let page = app.get("/keys").await.expect(200);
    assert!(!page.text.contains(&made.key) && !page.text.contains("hash"), "{}", page.text);
    let listed = key(&app, made.id).await.expect("the key");
    assert_eq!((&listed["prefix"], listed.get("key")), (&json!(&made.key[..9]), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_key_is_recorded() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let reader = app.make_key(json!({"scopes": ["read"]})).await;
    assert_eq!(key(&app, reader.id).await.expect("the key")["last_used_at"], Value::Null);
    app.advance(60);
    app.holding(&reader).get("/events").await.expect(200);
    let used = key(&app, reader.id).await.expect("the key")["last_used_at"].clone();
    assert_eq!(time(&used).timestamp(), app.now().timestamp());
    // The keys of the servers stay as they are: a use is no change.
    app.advance(60);
    app.get("/events").await.expect(200);
    assert_eq!(key(&app, reader.id).await.expect("the key")["last_used_at"], used);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_has_ended_is_listed_for_ninety_days() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let revoked = app.make_key(json!({"scopes": ["read"]})).await;
    let expiring =
        app.make_key(json!({"scopes": ["read"], "expires_at": app.now() + chrono::TimeDelta::days(1)})).await;
    app.post_empty(&format!("/keys/{}/revoke", revoked.id)).await.expect(200);
    let prune = async |days: i64| {
        app.advance(days * 86_400);
        retention::run_once(app.engine(), &by_default()).await.expect("a round");
        (key(&app, revoked.id).await.is_some(), key(&app, expiring.id).await.is_some())
    };
    assert_eq!(prune(90).await, (true, true));
    assert_eq!(prune(1).await, (false, true));
    assert_eq!(prune(1).await, (false, false));
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_key_secrets").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_a_key_unless_they_are_open() {
    let app = App::with_keys().await;
    app.as_stranger().get("/metrics").await.problem(401, "unauthenticated");
    app.holder_of("read").await.get("/metrics").await.expect(200);
    let options = Options { flags: vec!["--open-metrics".into()], ..Options::default() };
    let app = App::start_with(options).await.with_admin_key().await;
    app.as_stranger().get("/metrics").await.expect(200);
    app.as_stranger().get("/events").await.problem(401, "unauthenticated");
}
