//! The cookie of a session over TLS.

use reqwest::header::{COOKIE, ORIGIN};
use serde_json::json;

use super::TlsApp;
use crate::support::Reply;

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_cookie_is_for_this_host_and_for_tls_only() {
    let app = TlsApp::start().await;
    let key = app.post("/keys", &json!({"name": "ann", "scopes": ["admin"]})).await.expect(201).json();
    let login =
        app.client.post(format!("{}/login", app.base)).header(ORIGIN, &app.base).json(&json!({"key": key["key"]}));
    let reply = Reply::of(login.send().await.expect("a response")).await.expect(200);
    let cookie = reply.header("set-cookie").expect("a cookie");
    assert!(cookie.starts_with("__Host-waybill_session=wbs_"), "{cookie}");
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Secure") && cookie.contains("; Path=/; "), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair");
    let ask = async |cookie: &str| {
        let request = app.client.get(format!("{}/events", app.base)).header(COOKIE, cookie);
        request.send().await.expect("a response").status().as_u16()
    };
    assert_eq!(ask(pair).await, 200);
    assert_eq!(ask(pair.trim_start_matches("__Host-")).await, 401, "a neighbouring host may have set it");
}
