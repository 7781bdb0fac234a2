//! The login, and what readers see.

use serde_json::json;

use crate::support::App;
use crate::support::browser::Browser;
use crate::support::sessions::COOKIE_NAME;

#[tokio::test(flavor = "multi_thread")]
async fn somebody_logs_in_gets_where_they_wanted_and_logs_out() {
    let (app, browser) = (App::with_keys().await, Browser::start().await);
    let key = app.make_key(json!({"name": "ann", "scopes": ["read", "operate"]})).await;
    app.publish_tagged("reports").await;
    let page = browser.open(&format!("{}/ui/tags", app.base)).await;
    page.wait_until("location.pathname === '/login'").await;
    page.assert_clean().await;
    page.type_into("#key", "wb_wrong").await;
    page.press("Enter").await;
    page.wait_for("[role=alert], .error").await;
    assert!(page.console_errors().await.iter().all(|error| error.contains("401")), "the refusal alone");
    page.type_into("#key", &key.key).await;
    page.press("Enter").await;
    page.wait_until("location.pathname === '/ui/tags'").await;
    assert!(page.text_of(".bar").await.contains("ann"));
    assert_eq!(page.value_of("document.cookie").await, "", "scripts do not see the session");
    page.assert_clean().await;
    page.click("form[action='/logout'] button").await;
    page.open(&app.base).await;
    page.wait_until("location.pathname === '/login' && location.search === ''").await;
    page.type_into("#key", &key.key).await;
    page.press("Enter").await;
    page.wait_until("location.pathname === '/'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_no_buttons_and_no_contents() {
    let (app, browser) = (App::with_keys().await, Browser::start().await);
    let secret = json!({"title": "Charge", "tags": "billing", "payload": {"card": "4242"}});
    let id = app.publish(secret).await;
    app.publish_failures(1, "billing2", "card 4242 declined").await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let session = app.log_in(&key.key).await;
    let page = browser.open(&format!("{}/login", app.base)).await;
    page.set_cookie(COOKIE_NAME, &session).await;
    for path in
        ["/".to_owned(), "/ui/events".into(), "/ui/workers".into(), "/ui/tags".into(), format!("/ui/events/{id}")]
    {
        page.open(&format!("{}{path}", app.base)).await;
        assert!(!page.text_of("body").await.contains("4242"), "{path}");
        let buttons =
            page.value_of("document.querySelectorAll('[data-bulk], [data-action], [data-select]').length").await;
        assert_eq!(buttons, 0, "{path}");
        assert!(!page.text_of(".rail").await.contains("Keys"), "{path}");
        page.assert_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_namespace_redacts_is_hidden_from_everybody() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.patch("/namespaces/default", &json!({"settings": {"redact": ["payload.card.*"]}})).await.expect(200);
    let payload = json!({"card": {"number": "4242"}, "order": 17});
    let id = app.publish(json!({"title": "Charge", "tags": "billing", "payload": payload})).await;
    let page = browser.open(&format!("{}/ui/events/{id}", app.base)).await;
    let shown = page.text_of("#payload-text").await;
    assert!(shown.contains("17") && !shown.contains("4242"), "{shown}");
    page.assert_clean().await;
}
