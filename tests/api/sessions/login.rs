//! `GET /login` and `POST /login`.

use serde_json::json;

use crate::support::sessions::{COOKIE_NAME, session_of};
use crate::support::{App, Options, Reply};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gives_a_session_in_a_cookie_that_scripts_and_other_sites_cannot_use() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"], "name": "ann"})).await;
    let reply = app.as_stranger().send_login(&format!("key=%20{}%0A&next=/ui/session", key.key)).await.expect(303);
    assert_eq!(reply.header("location"), Some("/ui/session"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let session = session_of(&reply);
    let cookie = format!("{COOKIE_NAME}={session}; Path=/; Max-Age=");
    let attributes = reply.header("set-cookie").expect("a cookie").strip_prefix(&cookie).expect("the attributes");
    let (seconds, attributes) = attributes.split_once("; ").expect("more attributes");
    assert!((12 * 3_600 - 60..=12 * 3_600).contains(&seconds.parse().expect("a number")), "{seconds}");
    assert_eq!(attributes, "HttpOnly; SameSite=Strict");
    assert!(!reply.text.contains(&session) && !session.contains(&key.key[3..]));
    let browser = app.in_session(&session);
    let events = browser.get("/events").await.expect(200);
    assert_eq!(events.header("cache-control"), Some("no-store"), "no copy stays in the browser");
    assert!(browser.get("/ui/session").await.expect(200).text.contains("ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_log_in_with_json() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let reply = app.as_stranger().post("/login", &json!({"key": key.key})).await.expect(200);
    assert!(reply.json()["expires_at"].is_string());
    app.in_session(&session_of(&reply)).get("/events").await.expect(200);
    app.as_stranger().post("/login", &json!({"key": "wb_no"})).await.problem(401, "unauthenticated");
    app.as_stranger().post("/login", &json!({"key": key.key, "next": "/"})).await.names(&["next"]);
    app.as_stranger().post("/login", &json!({})).await.names(&["key"]);
    let text = app.client.post(format!("{}/login", app.base)).header("content-type", "text/plain").body("key=x");
    Reply::of(text.send().await.expect("a response")).await.problem(415, "unsupported_media_type");
}

/// Asserts that a login is refused with a page that has the form and this reason.
#[track_caller]
fn refuses(reply: Reply, status: u16, reason: &str) {
    let reply = reply.expect(status);
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(reply.text.contains(reason) && reply.text.contains("role=\"alert\""), "{}", reply.text);
    assert!(reply.text.contains("name=\"key\"") && reply.header("set-cookie").is_none(), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_good_key_gives_no_session() {
    let app = App::start_with(Options { fixed_clock: true, ..Options::default() }).await.with_admin_key().await;
    let stranger = app.as_stranger();
    let revoked = app.make_key(json!({"scopes": ["read"], "name": "bob"})).await;
    app.post_empty(&format!("/keys/{}/revoke", revoked.id)).await.expect(200);
    let expires_at = app.now() + chrono::TimeDelta::seconds(60);
    let expired = app.make_key(json!({"scopes": ["read"], "expires_at": expires_at})).await;
    let good = app.make_key(json!({"scopes": ["read"]})).await;
    let session = app.log_in(&good.key).await;
    app.advance(60);
    let unknown = waybill::domain::api_key::ApiKey::generate().expect("a key");
    let last = if good.key.ends_with('x') { 'y' } else { 'x' };
    let typo = format!("{}{last}", &good.key[..good.key.len() - 1]);
    for (key, reason) in [
        ("", "no key, or one with a typo"),
        ("wb_garbage", "no key, or one with a typo"),
        (&typo, "no key, or one with a typo"),
        ("%3Cscript%3E", "no key, or one with a typo"),
        (&session, "no key, or one with a typo"),
        (unknown.as_text(), "not known"),
        (&expired.key, "expired"),
        (&revoked.key, "revoked"),
    ] {
        refuses(stranger.send_login(&format!("key={key}&next=/ui/events")).await, 401, reason);
    }
    refuses(app.in_session(&session).send_login("next=/").await, 401, "no key, or one with a typo");
    assert_eq!(app.count("SELECT count(*) FROM waybill.api_key_secrets WHERE is_session").await, 1);
    app.engine().record_refused_calls().await.expect("a round");
    let refused = app.get("/audit?action=calls.refused").await.expect(200).json();
    let refused: Vec<_> = refused["entries"].as_array().expect("entries").iter().collect();
    let has = |actor: serde_json::Value, reason: &str| {
        refused.iter().any(|entry| entry["actor"] == actor && entry["detail"]["reason"] == reason)
    };
    assert!(has(json!("bob"), "key_revoked") && has(json!(null), "unauthenticated"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_are_limited_per_address_at_the_login_too() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let guess = || waybill::domain::api_key::ApiKey::generate().expect("a key");
    // The budget of the address, and what is reserved for all addresses whose budgets are used up.
    for _ in 0..10 + 5 {
        refuses(app.as_stranger().send_login(&format!("key={}", guess().as_text())).await, 401, "not known");
    }
    let refused = app.as_stranger().send_login(&format!("key={}", guess().as_text())).await;
    assert!(refused.header("retry-after").is_some());
    refuses(refused, 429, "Too many unknown keys");
    app.sending(guess().as_text()).get("/events").await.problem(429, "too_many_guesses");
    app.as_stranger().send_login(&format!("key={}", key.key)).await.expect(429);
    // A key that the server has in memory works from there.
    app.in_session("garbage").get("/health").await.expect(200);
    app.get("/events").await.expect(200);
}

/// Each login writes rows, and a logout makes all servers load their keys again.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_logs_in_only_so_often() {
    let app = App::with_keys().await;
    let [busy, other] =
        [app.make_key(json!({"scopes": ["publish"]})).await, app.make_key(json!({"scopes": ["read"]})).await];
    let mut logins = 0;
    let refused = loop {
        let reply = app.as_stranger().send_login(&format!("key={}", busy.key)).await;
        if reply.status != 303 {
            break reply;
        }
        logins += 1;
    };
    // On a slow machine a budget of 150 has refilled a little.
    assert!((150..200).contains(&logins), "{logins} logins");
    assert!(refused.header("retry-after").is_some());
    refuses(refused, 429, "too many logins with this key");
    app.log_in(&other.key).await;
    app.holding(&busy).post("/events", &json!({"title": "t", "tags": "a"})).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_leads_to_a_path_of_this_server_only() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    for (next, expected) in [
        ("/ui/events/5", "/ui/events/5"),
        ("/ui/events%3Fq%3Da%26order%3Ddesc", "/ui/events?q=a&order=desc"),
        ("", "/"),
        ("//evil.example", "/"),
        ("/%5Cevil.example", "/"),
        ("/%09/evil.example", "/"),
        ("/%0D%0Aset-cookie:a=b", "/"),
        ("https:", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/login", "/"),
    ] {
        let reply = app.as_stranger().send_login(&format!("key={}&next={next}", key.key)).await.expect(303);
        assert_eq!(reply.header("location"), Some(expected), "{next}");
        let page = app.as_stranger().get(&format!("/login?next={next}")).await.expect(200);
        assert!(!page.text.contains("evil") && !page.text.contains("javascript:"), "{}", page.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_login_is_plain_and_strict() {
    let app = App::with_keys().await;
    let page = app.as_stranger().get("/login?next=/ui/events%22%3E%3Cscript%3E").await.expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'self'; form-action 'self';"), "{policy}");
    assert!(!policy.contains("script-src") && !policy.contains("unsafe"), "{policy}");
    for needed in ["<label for=\"key\">", "autocomplete=\"current-password\"", "lang=\"en\"", "width=device-width"] {
        assert!(page.text.contains(needed), "{needed} in {}", page.text);
    }
    for never in ["<script", "<style", " style=", "onclick"] {
        assert!(!page.text.contains(never), "{never} in {}", page.text);
    }
    app.as_stranger().get("/login?colour=red").await.expect(400);
    app.as_stranger().delete("/login").await.problem(405, "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_logged_in_is_told_so() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["publish"], "name": "<ann>"})).await;
    let page = app.in_session(&app.log_in(&key.key).await).get("/login").await.expect(200);
    assert!(page.text.contains("&lt;ann&gt;") && page.text.contains("action=\"/logout\""), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_server_needs_no_login() {
    let app = App::start().await;
    let page = app.get("/login?next=/ui/session").await.expect(200);
    assert!(page.text.contains("No login is needed") && page.text.contains("href=\"/ui/session\""), "{}", page.text);
    let reply = app.send_login("key=wb_anything&next=/ui/session").await.expect(303);
    assert_eq!((reply.header("location"), reply.header("set-cookie")), (Some("/ui/session"), None));
    let page = app.get("/ui/session").await.expect(200);
    assert!(page.text.contains("this server is open") && !page.text.contains("/logout"), "{}", page.text);
    // The cookie of another server on this host, or an old one, locks nobody out.
    for cookie in ["garbage", waybill::domain::api_key::SessionSecret::generate().expect("a secret").as_text()] {
        app.in_session(cookie).get("/events").await.expect(200);
        app.in_session(cookie).get("/ui/session").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stylesheets_are_kept_for_ever_under_the_hash_of_their_content() {
    let app = App::with_keys().await;
    let page = app.as_stranger().get("/login").await.expect(200);
    let (_, rest) = page.text.split_once("href=\"/assets/").expect("a stylesheet");
    let name = rest.split('"').next().expect("a name");
    let sheet = app.as_stranger().get(&format!("/assets/{name}")).await.expect(200);
    assert_eq!(sheet.header("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(sheet.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(sheet.header("x-content-type-options"), Some("nosniff"));
    assert!(!sheet.text.contains("url(") && !sheet.text.contains("@import"));
    for nothing in ["plain.css", "plain.000000000000.css", "..%2Fopenapi.yaml"] {
        app.as_stranger().get(&format!("/assets/{nothing}")).await.problem(404, "route_not_found");
    }
}
