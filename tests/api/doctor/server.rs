//! The server itself: keys, secrets and retention.

use std::io::Write;

use chrono::TimeDelta;
use serde_json::json;
use waybill::domain::encryption::{Keyring, SecretKey};

use super::assert_says;
use crate::support::{App, Options};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_about_to_end_is_found() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    app.make_key(json!({"name": "later", "scopes": ["read"], "expires_at": app.now() + TimeDelta::days(30)})).await;
    app.assert_check("keys", "ok").await;
    let fields = json!({"name": "deploy", "scopes": ["publish"], "expires_at": app.now() + TimeDelta::days(10)});
    let soon = app.make_key(fields).await;
    let keys = app.assert_check("keys", "warning").await;
    assert_eq!(keys["summary"], "1 key ends within two weeks: deploy in 10 days");
    assert_says(&keys["advice"], &format!("waybill keys revoke {}.", soon.id));
    app.advance(9 * 86_400 + 3_600);
    app.assert_check("keys", "problem").await;
    app.post_empty(&format!("/keys/{}/revoke", soon.id)).await.expect(200);
    app.assert_check("keys", "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_key_that_this_server_does_not_have_is_found() {
    let key = SecretKey::generate().expect("random bytes");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(key.as_bytes()).expect("it is written");
    let flags = vec![format!("--secret-key-file={}", file.path().display())];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["t"]})).await;
    app.assert_check("secrets", "ok").await;
    let other = App::start_with(Options { url: Some(app.url.clone()), ..Options::default() }).await;
    let secrets = other.assert_check("secrets", "problem").await;
    let id = Keyring::parse(&key).expect("a key").first_id().expect("a key").to_owned();
    assert_eq!(secrets["details"]["missing_keys"], json!([id]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_behind_is_found() {
    let app = App::start().await;
    app.assert_check("retention", "ok").await;
    app.engine().metrics().set_retention_lag("event_log", 90_000.0);
    let retention = app.assert_check("retention", "problem").await;
    assert_eq!(retention["summary"], "the removal of old rows of event_log is 25 h behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_may_ask() {
    let app = App::with_keys().await;
    for scope in ["read", "operate", "publish", "work"] {
        app.holder_of(scope).await.get("/doctor").await.expect(403);
    }
    app.get("/doctor").await.expect(200);
}
