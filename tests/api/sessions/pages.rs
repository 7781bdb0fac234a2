//! What a session may do, and from where.

use reqwest::header::{COOKIE, HeaderMap, ORIGIN};
use serde_json::json;
use waybill::http::doors::Door;

use crate::support::sessions::COOKIE_NAME;
use crate::support::{App, Reply, http_client_with};

/// Returns the server as a browser with this session and these headers sees it.
fn browser(app: &App, session: &str, headers: &[(&'static str, &str)]) -> App {
    let mut all = HeaderMap::new();
    all.insert(COOKIE, format!("{COOKIE_NAME}={session}").parse().expect("a header"));
    for (name, value) in headers {
        all.insert(*name, value.parse().expect("a header"));
    }
    App { server: None, url: app.url.clone(), base: app.base.clone(), client: http_client_with(all) }
}

async fn session_with(app: &App, scopes: &[&str]) -> String {
    let key = app.make_key(json!({"scopes": scopes})).await;
    app.log_in(&key.key).await
}

#[test]
fn nothing_but_the_login_is_open_among_the_pages() {
    let pages = waybill::http::pages();
    let open: Vec<(&str, &str)> =
        pages.iter().filter(|page| page.door == Door::Open).map(|page| (page.method.as_str(), page.path)).collect();
    assert_eq!(open, [("GET", "/login"), ("POST", "/login"), ("POST", "/logout"), ("GET", "/assets/{name}")]);
    let routes = waybill::http::routes();
    for page in &pages {
        assert!(!routes.iter().any(|route| route.path == page.path), "{} is in the API", page.path);
        assert!(page.method == "GET" || page.door == Door::Open, "{}", page.path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_leads_to_the_login_and_back_instead_of_401() {
    let app = App::with_keys().await;
    for caller in [app.as_stranger(), app.in_session("garbage"), app.in_session("")] {
        let reply = caller.get("/ui/session").await.expect(303);
        assert_eq!(reply.header("location"), Some("/login?next=/ui/session"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let reply = caller.get("/ui/session?a=b%20c&d").await.expect(303);
        assert_eq!(reply.header("location"), Some("/login?next=/ui/session%3Fa%3Db%2520c%26d"));
        caller.get("/events").await.problem(401, "unauthenticated");
        caller.get("/docs").await.expect(200);
        caller.get("/health").await.expect(200);
    }
    app.engine().record_refused_calls().await.expect("a round");
    let pages = "SELECT coalesce(sum((detail ->> 'calls')::int), 0)::bigint AS count FROM waybill.audit_log";
    assert_eq!(app.count(pages).await, 3, "only the calls of the API");
}

/// A browser does not send the cookie with a link of another site. The page that it gets asks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_from_another_site_is_followed_once_more_from_here() {
    let app = App::with_keys().await;
    let request = app.as_stranger().client.get(format!("{}/ui/session?a=%22%3E", app.base));
    let reply = request.header("sec-fetch-site", "cross-site").send().await.expect("a response");
    let reply = Reply::of(reply).await.expect(200);
    assert!(reply.text.contains("content=\"0;url=/ui/session?a=%22%3E\""), "{}", reply.text);
    assert!(reply.header("content-security-policy").expect("a policy").starts_with("default-src 'none'"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_names_the_scope_that_a_session_lacks() {
    let app = App::with_keys().await;
    let reply = app.in_session(&session_with(&app, &["publish"]).await).get("/ui/session").await.expect(403);
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(reply.text.contains("<code>read</code>"), "{}", reply.text);
    let wrong = app.in_session(&session_with(&app, &["read"]).await).get("/ui/session?x=1").await.expect(400);
    assert_eq!(wrong.header("content-type"), Some("text/html; charset=utf-8"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_a_reader_reads_and_its_writes_are_refused() {
    let app = App::with_keys().await;
    let id = app.publish(json!({"title": "t", "tags": "a", "payload": "secret"})).await;
    let reader = app.in_session(&session_with(&app, &["read"]).await);
    reader.get("/ui/session").await.expect(200);
    assert_eq!(reader.get(&format!("/events/{id}")).await.expect(200).json()["payload"], json!(null));
    let problem = reader.post_empty(&format!("/events/{id}/cancel")).await.problem(403, "scope_missing");
    assert_eq!(problem["scope"], "operate");
    let operator = app.in_session(&session_with(&app, &["operate"]).await);
    operator.post_empty(&format!("/events/{id}/cancel")).await.expect(200);
}

/// Browsers follow links of other programs with the cookies of the session, and say that no page has sent them.
#[tokio::test(flavor = "multi_thread")]
async fn no_link_claims_work_with_a_session() {
    let app = App::with_keys().await;
    let session = session_with(&app, &["admin"]).await;
    let id = app.publish_tagged("a").await;
    let claim = "/events/subscribe?tags=a&worker_id=w:1";
    let typed = [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")];
    browser(&app, &session, &typed).get(claim).await.problem(403, "origin_not_allowed");
    for headers in [[("sec-fetch-site", "same-origin")], [("sec-fetch-site", "none")]] {
        browser(&app, &session, &headers).get(claim).await.problem(401, "unauthenticated");
    }
    assert_eq!(app.status(id).await, "PENDING");
    let own = browser(&app, &session, &[("sec-fetch-site", "same-origin")]);
    let claimed = own.post("/events/claim", &json!({"tags": ["a"], "worker_id": "w:1"})).await.expect(200).json();
    assert_eq!(claimed["events"][0]["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_cannot_write_with_a_session() {
    let app = App::with_keys().await;
    let session = session_with(&app, &["admin"]).await;
    let id = app.publish_tagged("a").await;
    let (cancel, claim) = (format!("/events/{id}/cancel"), "/events/subscribe?tags=a&worker_id=w:1");
    let foreign: [&[(&'static str, &str)]; 4] = [
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", "https://evil.example")],
    ];
    for headers in foreign {
        let page = browser(&app, &session, headers);
        page.post_empty(&cancel).await.problem(403, "origin_not_allowed");
        page.get(claim).await.problem(403, "origin_not_allowed");
        page.post_empty("/logout").await.problem(403, "origin_not_allowed");
        page.post("/login", &json!({"key": "wb_x"})).await.problem(403, "origin_not_allowed");
        page.delete("/subscriptions/1").await.problem(403, "origin_not_allowed");
    }
    // A browser that tells nothing may be showing any page.
    let old = browser(&app, &session, &[]);
    let problem = old.post_empty(&cancel).await.problem(401, "unauthenticated");
    assert!(problem["detail"].as_str().expect("a text").contains("Sec-Fetch-Site"), "{problem}");
    old.get(claim).await.problem(401, "unauthenticated");
    old.get("/%65vents/subscribe?tags=a&worker_id=w:1").await.problem(401, "unauthenticated");
    old.get("/events").await.expect(200);
    assert_eq!(app.status(id).await, "PENDING");
    let own: [&[(&'static str, &str)]; 2] = [&[("origin", &app.base)], &[("sec-fetch-site", "same-origin")]];
    for headers in own {
        browser(&app, &session, headers).post("/events", &json!({"title": "t", "tags": "b"})).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_both_the_key_counts_and_neither_is_taken_for_the_other() {
    let app = App::with_keys().await;
    let session = session_with(&app, &["admin"]).await;
    let reader = app.make_key(json!({"scopes": ["read"]})).await;
    let bearer = format!("Bearer {}", reader.key);
    let both = browser(&app, &session, &[("authorization", &bearer), ("origin", &app.base)]);
    both.get("/events").await.expect(200);
    both.get("/keys").await.problem(403, "scope_missing");
    browser(&app, &session, &[("authorization", "Bearer garbage")])
        .get("/events")
        .await
        .problem(401, "unauthenticated");
    app.sending(&session).get("/events").await.problem(401, "unauthenticated");
    app.in_session(&reader.key).get("/events").await.problem(401, "unauthenticated");
}

/// A key made by a session is recorded as made by its key.
#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_makes_and_revokes_keys_in_a_session() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["admin"], "name": "ann"})).await;
    let ann = app.in_session(&app.log_in(&key.key).await);
    let made = ann.make_key(json!({"scopes": ["read"]})).await;
    let revoked = ann.post_empty(&format!("/keys/{}/revoke", made.id)).await.expect(200).json();
    assert_eq!(revoked["created_by"], "ann");
    ann.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    ann.get("/keys").await.problem(401, "key_revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_is_trusted_says_that_the_browser_uses_tls() {
    let options = crate::support::Options { flags: vec!["--trusted-proxies=127.0.0.0/8".into()], ..Default::default() };
    let app = App::start_with(options).await.with_admin_key().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let login = async |headers: &[(&'static str, &str)]| {
        let mut request = app.as_stranger().client.post(format!("{}/login", app.base)).header(ORIGIN, &app.base);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let reply = Reply::of(request.json(&json!({"key": key.key})).send().await.expect("a response")).await;
        reply.expect(200).header("set-cookie").expect("a cookie").to_owned()
    };
    for headers in [("x-forwarded-proto", "https"), ("forwarded", "for=192.0.2.1;proto=https")] {
        let cookie = login(&[headers]).await;
        assert!(
            cookie.starts_with("__Host-waybill_session=wbs_") && cookie.ends_with("; SameSite=Strict; Secure"),
            "{cookie}"
        );
        let cookie = cookie.split(';').next().expect("a pair");
        let asked = async |proto: &str| {
            let request = app.as_stranger().client.get(format!("{}/events", app.base)).header(COOKIE, cookie);
            request.header("x-forwarded-proto", proto).send().await.expect("a response").status()
        };
        assert_eq!((asked("https").await.as_u16(), asked("http").await.as_u16()), (200, 401));
    }
    let cookie = login(&[("x-forwarded-proto", "http")]).await;
    assert!(cookie.starts_with("waybill_session=wbs_") && !cookie.contains("Secure"), "{cookie}");
}
