//! API keys, their secrets and those of subscriptions and sources: each has its bound.

use chrono::TimeDelta;
use serde_json::json;

use crate::support::retention::DAY;
use crate::support::{App, Options};

async fn app() -> App {
    App::with_fixed_clock().await.with_admin_key().await
}

async fn secrets(app: &App) -> i64 {
    app.count("SELECT count(*) FROM waybill.api_key_secrets").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_leaves_90_days_after_it_was_revoked_or_has_expired() {
    let app = app().await;
    let revoked = app.make_key(json!({"scopes": ["read"]})).await;
    app.make_key(json!({"scopes": ["read"], "expires_at": app.now() + TimeDelta::seconds(60)})).await;
    app.make_key(json!({"scopes": ["read"], "expires_at": app.now() + TimeDelta::seconds(120)})).await;
    app.post_empty(&format!("/keys/{}/revoke", revoked.id)).await.expect(200);
    app.advance(90 * DAY);
    assert_eq!(app.remove_old().await["api_keys"], 0);
    app.advance(1);
    assert_eq!(app.remove_old().await["api_keys"], 1);
    app.advance(60);
    assert_eq!(app.remove_old().await["api_keys"], 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_keys").await, 2, "one expired later, and one is in use");
    assert_eq!(secrets(&app).await, 2);
    app.get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_secret_of_a_key_leaves_90_days_after_its_overlap() {
    let app = app().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let rotate = async |seconds| {
        let overlap = json!({"overlap_seconds": seconds});
        app.post(&format!("/keys/{}/rotate", key.id), &overlap).await.expect(200);
    };
    rotate(60).await;
    rotate(120).await;
    app.advance(60 + 90 * DAY);
    assert_eq!(app.remove_old().await["api_key_secrets"], 0);
    app.holding(&key).get("/events").await.problem(401, "key_expired");
    app.advance(1);
    assert_eq!(app.remove_old().await["api_key_secrets"], 1);
    assert_eq!(secrets(&app).await, 3, "one ended later, and two are in use");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_leaves_90_days_after_its_end_if_nobody_logs_in_again() {
    let flags = vec!["--session-hours=2".to_owned()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await.with_admin_key().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    app.log_in(&key.key).await;
    app.advance(60);
    app.log_in(&key.key).await;
    app.advance(2 * 3_600 - 60 + 90 * DAY);
    assert_eq!(app.remove_old().await["api_key_secrets"], 0);
    app.advance(1);
    assert_eq!(app.remove_old().await["api_key_secrets"], 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_key_secrets WHERE is_session").await, 1);
    app.holding(&key).get("/events").await.expect(200);
}

/// They are not accepted any longer, so nobody needs them.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_deletes_the_secrets_whose_overlap_has_ended_and_no_others() {
    let app = App::with_fixed_clock().await;
    let subscription = app.subscribe("http://127.0.0.1:9/a", json!({})).await;
    let source = app.source(json!({"verify": {"scheme": "github", "secret": "s"}})).await;
    for (path, table) in [
        (format!("/subscriptions/{}", subscription["id"]), "subscription_secrets"),
        (format!("/sources/{}", source["id"]), "source_secrets"),
    ] {
        let rotate = async |seconds: i64| {
            let mut body = json!({"overlap_seconds": seconds});
            if table == "source_secrets" {
                body["secret"] = json!(format!("the next after {seconds} seconds"));
            }
            app.post(&format!("{path}/rotate-secret"), &body).await.expect(200);
            app.count(&format!("SELECT count(*) FROM waybill.{table}")).await
        };
        assert_eq!((rotate(60).await, rotate(120).await), (2, 3));
        app.advance(61);
        assert_eq!(rotate(180).await, 3, "one of three has ended, and there is a new one");
    }
}
