//! How sessions end.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::sessions::COOKIE_NAME;
use crate::support::{App, Options, until};

async fn two_listening_servers() -> (App, App) {
    let flags = vec!["--poll-interval-ms=60000".to_owned()];
    let one = App::start_with(Options { flags: flags.clone(), ..Options::default() }).await;
    let other = App::start_with(Options { flags, url: Some(one.url.clone()), ..Options::default() }).await;
    one.until_listening(2).await;
    let one = one.with_admin_key().await;
    until("the other requires keys", async || other.engine().keys().is_required()).await;
    (one, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_ends_the_session_on_the_other_server_too() {
    let (one, other) = two_listening_servers().await;
    let key = one.make_key(json!({"scopes": ["read"], "name": "ann"})).await;
    let (session, another) = (one.log_in(&key.key).await, one.log_in(&key.key).await);
    let there = App { base: other.base.clone(), ..one.in_session(&session) };
    there.get("/events").await.expect(200);
    let reply = one.in_session(&session).post_empty("/logout").await.expect(303);
    assert_eq!(reply.header("location"), Some("/login"));
    let cookie = format!("{COOKIE_NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    assert_eq!(reply.header("set-cookie"), Some(cookie.as_str()));
    one.in_session(&session).get("/events").await.problem(401, "unauthenticated");
    until("the other server knows", async || there.get("/events").await.status == 401).await;
    assert_eq!(there.get("/ui/session").await.expect(303).header("location"), Some("/login?next=/ui/session"));
    one.in_session(&another).get("/events").await.expect(200);
    one.holding(&key).get("/events").await.expect(200);
    let entries = one.get("/audit?actor=ann&order=asc").await.expect(200).json();
    let actions: Vec<&Value> =
        entries["entries"].as_array().expect("entries").iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["key.logged_in", "key.logged_in", "key.logged_out"]);
    // A second logout has nothing to end.
    one.in_session(&session).post_empty("/logout").await.expect(303);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_of_the_key_ends_its_sessions() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let session = app.log_in(&key.key).await;
    app.in_session(&session).get("/events").await.expect(200);
    app.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    app.in_session(&session).get("/events").await.problem(401, "key_revoked");
    app.in_session(&session).get("/ui/session").await.expect(303);
}

async fn app_with_fixed_clock() -> App {
    App::start_with(Options { fixed_clock: true, flags: vec!["--session-hours=2".into()], ..Options::default() })
        .await
        .with_admin_key()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_by_itself_and_is_removed_by_the_next_login() {
    let app = app_with_fixed_clock().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let session = app.log_in(&key.key).await;
    app.advance(2 * 3_600 - 1);
    app.in_session(&session).get("/events").await.expect(200);
    app.advance(1);
    app.in_session(&session).get("/events").await.problem(401, "key_expired");
    app.in_session(&session).get("/ui/session").await.expect(303);
    app.log_in(&key.key).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_key_secrets WHERE is_session").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_not_outlive_the_key_or_the_secret_that_made_it() {
    let app = app_with_fixed_clock().await;
    let short = app.make_key(json!({"scopes": ["read"], "expires_at": app.now() + TimeDelta::seconds(60)})).await;
    let rotated = app.make_key(json!({"scopes": ["read"]})).await;
    let (of_short, before) = (app.log_in(&short.key).await, app.log_in(&rotated.key).await);
    let overlap = json!({"overlap_seconds": 60});
    let now = app.post(&format!("/keys/{}/rotate", rotated.id), &overlap).await.expect(200).json();
    let with_old = app.log_in(&rotated.key).await;
    let with_new = app.log_in(now["key"].as_str().expect("a key")).await;
    app.advance(59);
    for session in [&of_short, &before, &with_old, &with_new] {
        app.in_session(session).get("/events").await.expect(200);
    }
    app.advance(1);
    for session in [&of_short, &before, &with_old] {
        app.in_session(session).get("/events").await.problem(401, "key_expired");
    }
    app.in_session(&with_new).get("/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_not_among_the_secrets_of_a_key() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let listed = async || {
        let keys = app.get("/keys").await.expect(200).json();
        let keys = keys["keys"].as_array().expect("keys").clone();
        keys.into_iter().find(|listed| listed["id"] == key.id).expect("the key")
    };
    for _ in 0..12 {
        app.log_in(&key.key).await;
    }
    let found = listed().await;
    assert_eq!((&found["secrets"], &found["prefix"]), (&json!(1), &json!(key.key[..9])));
    // Nor do they use up the room for secrets.
    app.post(&format!("/keys/{}/rotate", key.id), &json!({"overlap_seconds": 60})).await.expect(200);
    assert_eq!(listed().await["secrets"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_session_of_too_many_ends() {
    let app = app_with_fixed_clock().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let mut sessions = Vec::new();
    for _ in 0..101 {
        sessions.push(app.log_in(&key.key).await);
        app.advance(1);
    }
    app.in_session(&sessions[0]).get("/events").await.problem(401, "unauthenticated");
    for session in [&sessions[1], &sessions[100]] {
        app.in_session(session).get("/events").await.expect(200);
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_key_secrets WHERE is_session").await, 100);
}
