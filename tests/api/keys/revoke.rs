//! `POST /keys/{id}/revoke`, and keys that expire.

use chrono::TimeDelta;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::keys::MadeKey;
use crate::support::{App, until, within_patience};

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_at_once_and_for_good() {
    let app = App::with_keys().await;
    let reader = app.make_key(json!({"scopes": ["read"]})).await;
    app.holding(&reader).get("/events").await.expect(200);
    let path = format!("/keys/{}/revoke", reader.id);
    let revoked = app.post_empty(&path).await.expect(200).json();
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    let refused = app.holding(&reader).get("/events").await;
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    refused.problem(401, "key_revoked");
    assert_eq!(app.post_empty(&path).await.expect(200).json(), revoked);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_cannot_be_revoked_and_takes_no_input() {
    let app = App::with_keys().await;
    app.post_empty("/keys/4711/revoke").await.problem(404, "key_not_found");
    app.post_empty("/keys/4711/revoke?force=true").await.names(&["force"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_key_of_an_administrator_stays() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let in_a_minute = app.now() + TimeDelta::minutes(1);
    let second = app.make_key(json!({"scopes": ["admin"], "expires_at": in_a_minute})).await;
    let first = app.get("/keys").await.expect(200).json()["keys"][0]["id"].clone();
    app.advance(61);
    app.post_empty(&format!("/keys/{first}/revoke")).await.problem(409, "last_admin_key");
    app.get("/keys").await.expect(200);
    let third = app.make_key(json!({"scopes": ["admin"]})).await;
    app.post_empty(&format!("/keys/{first}/revoke")).await.expect(200);
    app.get("/keys").await.problem(401, "key_revoked");
    app.holding(&second).get("/keys").await.problem(401, "key_expired");
    app.holding(&third).get("/keys").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_administrators_who_revoke_each_other_do_not_both_succeed() {
    let app = App::with_keys().await;
    let other = app.make_key(json!({"scopes": ["admin"]})).await;
    let first = app.get("/keys").await.expect(200).json()["keys"][0]["id"].clone();
    let holder = app.holding(&other);
    let (one, two) = (format!("/keys/{}/revoke", other.id), format!("/keys/{first}/revoke"));
    let (one, two) = tokio::join!(app.post_empty(&one), holder.post_empty(&two));
    let succeeded = [&one, &two].iter().filter(|reply| reply.status == 200).count();
    assert_eq!(succeeded, 1, "{one:?} {two:?}");
    let in_use = "SELECT count(*) FROM waybill.api_keys WHERE revoked_at IS NULL";
    assert_eq!(app.count(in_use).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_expires_at_its_time() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let fields = json!({"scopes": ["read"], "expires_at": app.now() + TimeDelta::seconds(60)});
    let reader = app.make_key(fields).await;
    app.advance(59);
    app.holding(&reader).get("/events").await.expect(200);
    app.advance(1);
    app.holding(&reader).get("/events").await.problem(401, "key_expired");
}

/// Sends `POST /keys` without the last byte of its body. Returns the connection once the door has let it in.
async fn send_almost_all(app: &App, key: &MadeKey) -> TcpStream {
    let mut socket = TcpStream::connect(app.base.trim_start_matches("http://")).await.expect("a connection");
    let body = r#"{"name":"late","scopes":["read"]}"#;
    let head = format!(
        "POST /keys HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{}",
        key.key,
        body.len(),
        &body[..body.len() - 1]
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    let is_used = format!("SELECT count(*) FROM waybill.api_keys WHERE id = {} AND last_used_at IS NOT NULL", key.id);
    until("the key is used", async || {
        app.engine().record_key_use().await.expect("the database answers");
        app.count(&is_used).await == 1
    })
    .await;
    socket
}

async fn send_the_rest(mut socket: TcpStream) -> String {
    socket.write_all(b"}").await.expect("sent");
    let mut response = String::new();
    within_patience(socket.read_to_string(&mut response)).await.expect("a response");
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_ends_before_the_body_has_arrived_has_no_effect() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let in_a_minute = app.now() + TimeDelta::minutes(1);
    let revoked = app.make_key(json!({"scopes": ["admin"]})).await;
    let expired = app.make_key(json!({"scopes": ["admin"], "expires_at": in_a_minute})).await;
    let (one, other) = (send_almost_all(&app, &revoked).await, send_almost_all(&app, &expired).await);
    app.post_empty(&format!("/keys/{}/revoke", revoked.id)).await.expect(200);
    app.advance(60);
    for (socket, code) in [(one, "key_revoked"), (other, "key_expired")] {
        let response = send_the_rest(socket).await;
        assert!(response.starts_with("HTTP/1.1 401") && response.contains(code), "{response}");
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_keys WHERE name = 'late'").await, 0);
}
