//! `POST /keys/{id}/rotate`.

use serde_json::{Value, json};

use crate::support::App;
use crate::support::keys::MadeKey;

async fn rotate(app: &App, key: &MadeKey, body: Value) -> MadeKey {
    MadeKey::of(&app.post(&format!("/keys/{}/rotate", key.id), &body).await.expect(200).json())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_are_good_for_the_overlap() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let old = app.make_key(json!({"scopes": ["read"]})).await;
    app.holding(&old).get("/events").await.expect(200);
    let rotated =
        app.post(&format!("/keys/{}/rotate", old.id), &json!({"overlap_seconds": 60})).await.expect(200).json();
    assert_eq!(rotated["secrets"], 2);
    let new = MadeKey::of(&rotated);
    assert_eq!(rotated["prefix"], new.key[..9]);
    app.advance(59);
    app.holding(&old).get("/events").await.expect(200);
    app.holding(&new).get("/events").await.expect(200);
    app.advance(1);
    app.holding(&old).get("/events").await.problem(401, "key_expired");
    app.holding(&new).get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_overlap_the_old_secret_ends_at_once() {
    let app = App::with_keys().await;
    let old = app.make_key(json!({"scopes": ["read"]})).await;
    app.holding(&old).get("/events").await.expect(200);
    let new = rotate(&app, &old, json!({"overlap_seconds": 0})).await;
    app.holding(&old).get("/events").await.problem(401, "key_expired");
    app.holding(&new).get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_rotation_does_not_prolong_an_earlier_overlap() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let first = app.make_key(json!({"scopes": ["read"]})).await;
    let second = rotate(&app, &first, json!({"overlap_seconds": 10})).await;
    let third = rotate(&app, &first, json!({})).await;
    app.advance(10);
    app.holding(&first).get("/events").await.problem(401, "key_expired");
    app.holding(&second).get("/events").await.expect(200);
    app.advance(86_400);
    app.holding(&second).get("/events").await.problem(401, "key_expired");
    app.holding(&third).get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_secrets_of_a_key_end_when_it_is_revoked() {
    let app = App::with_keys().await;
    let old = app.make_key(json!({"scopes": ["read"]})).await;
    let new = rotate(&app, &old, json!({})).await;
    app.post_empty(&format!("/keys/{}/revoke", old.id)).await.expect(200);
    for key in [&old, &new] {
        app.holding(key).get("/events").await.problem(401, "key_revoked");
    }
    app.post(&format!("/keys/{}/rotate", old.id), &json!({})).await.problem(409, "key_not_in_use");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_ten_secrets_are_in_use() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    for _ in 1..10 {
        rotate(&app, &key, json!({})).await;
    }
    let path = format!("/keys/{}/rotate", key.id);
    app.post(&path, &json!({})).await.problem(409, "too_many_secrets");
    app.holding(&key).get("/events").await.expect(200);
    // One that ends all others is possible.
    rotate(&app, &key, json!({"overlap_seconds": 0})).await;
    app.post("/keys/4711/rotate", &json!({})).await.problem(404, "key_not_found");
    app.post(&path, &json!({"overlap_seconds": 604_801})).await.names(&["overlap_seconds"]);
}
