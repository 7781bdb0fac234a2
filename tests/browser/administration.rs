//! Keys, namespaces, event types and settings, managed in a browser.

use serde_json::json;

use crate::support::App;
use crate::support::browser::{Browser, Page};

/// Logs in with a key, in the form of the login.
async fn log_in(page: &Page<'_>, app: &App, key: &str) {
    page.open(&format!("{}/login", app.base)).await;
    page.type_into("input[name=key]", key).await;
    page.click("button").await;
    page.wait_until("location.pathname === '/'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_made_in_the_browser_and_allows_only_what_it_says() {
    let server = App::start().await;
    let admin = server.make_key(json!({"name": "ops", "scopes": ["admin"]})).await;
    let app = server.holding(&admin);
    let id = app.publish(json!({"title": "a job", "tags": "reports", "payload": {"card": "4242"}})).await;
    let browser = Browser::start().await;
    let page = browser.open(&format!("{}/login", app.base)).await;
    log_in(&page, &app, &admin.key).await;
    page.open(&format!("{}/ui/keys/new", app.base)).await;
    page.assert_clean().await;
    page.type_into("#field-name", "the reader").await;
    page.click("input[name=scopes][value=read]").await;
    page.click("form.form button.primary").await;
    let key = page.text_of("dialog .secret").await;
    assert!(key.starts_with("wb_") && key.len() == 39, "{key}");
    page.press("Escape").await;
    page.wait_until("/^.ui.keys.\\d+$/.test(location.pathname)").await;
    assert!(!page.text_of("main").await.contains(&key), "it is shown once");
    page.assert_clean().await;
    page.click("form[action='/logout'] button").await;
    log_in(&page, &app, &key).await;
    page.open(&format!("{}/ui/events/{id}", app.base)).await;
    assert!(!page.text_of("main").await.contains("4242"));
    assert_eq!(page.value_of("document.querySelectorAll('main [data-action], select[data-goto]').length").await, 0);
    assert!(!page.texts_of(".rail a").await.contains(&"Keys".to_owned()));
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_stands_beside_a_schema_that_is_wrong() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.put("/event-types/order.charged", &json!({"schema": {"type":"object"}, "examples": [{"order": 1}]}))
        .await
        .expect(201);
    let page = browser.open(&format!("{}/ui/event-types/order.charged", app.base)).await;
    page.assert_clean().await;
    page.type_into("#field-schema", "{\"type\": ").await;
    page.click("form.form button.primary").await;
    page.wait_until("document.querySelector('[data-error-of=schema]').textContent.includes('JSON')").await;
    page.type_into("#field-schema", "{\"type\": \"objekt\"}").await;
    page.click("form.form button.primary").await;
    page.wait_until("document.querySelector('[data-error-of=schema]').textContent.includes('schema.type')").await;
    assert_eq!(page.focused().await, "schema");
    // The browser logs that the API has refused it.
    assert_eq!(page.console_errors().await.len(), 1);
    page.assert_clean().await;
    page.type_into("#field-schema", "{\"type\": \"object\", \"required\": [\"order\"]}").await;
    page.click("form.form button.primary").await;
    page.wait_until("document.querySelector('.head .state')?.textContent === 'version 2'").await;
    // What was not changed is sent as it is stored, so that it counts as unchanged.
    page.type_into("#field-description", "An order was charged").await;
    page.click("form.form button.primary").await;
    page.wait_until("document.querySelector('main').innerText.includes('An order was charged')").await;
    assert_eq!(page.text_of(".head .state").await, "version 2");
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_made_switched_to_and_shows_only_its_own_events() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let id = app.publish(json!({"title": "of default", "tags": "reports"})).await;
    let page = browser.open(&format!("{}/ui/namespaces", app.base)).await;
    page.assert_clean().await;
    page.type_into("#field-name", "shop").await;
    page.click("form.form button.primary").await;
    page.wait_until("location.pathname === '/ui/namespaces/shop'").await;
    page.assert_clean().await;
    app.in_namespace("shop").publish(json!({"title": "of shop", "tags": "reports"})).await;
    page.open(&format!("{}/ui/events/{id}", app.base)).await;
    page.click("select.namespaces option[value$='namespace=shop']").await;
    page.wait_until("location.pathname === '/ui/events' && location.search === '?namespace=shop'").await;
    let text = page.text_of("main").await;
    assert!(text.contains("of shop") && !text.contains("of default"), "{text}");
    // Forms and links stay in the namespace.
    page.click("main a.button[href^='/ui/publish']").await;
    page.type_into("#field-title", "from the page").await;
    page.type_into("#field-tags", "reports, mail").await;
    page.click("form.form button.primary").await;
    page.wait_until("location.search === '?namespace=shop' && /^.ui.events.\\d+$/.test(location.pathname)").await;
    assert_eq!(page.text_of("h1").await, "from the page");
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_payload_keeps_every_digit() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/publish", app.base)).await;
    page.assert_clean().await;
    page.type_into("#field-title", "<b>big</b>").await;
    page.type_into("#field-tags", "reports").await;
    page.type_into("#field-payload", "{\"order\": 9007199254740993, \"price\": 1.10}").await;
    page.click("form.form button.primary").await;
    page.wait_until("/^.ui.events.\\d+$/.test(location.pathname)").await;
    assert_eq!(page.text_of("h1").await, "<b>big</b>");
    assert!(page.text_of("main").await.contains("9007199254740993"));
    let stored = "SELECT count(*) FROM waybill.events WHERE payload::text LIKE '%9007199254740993%1.10%'";
    assert_eq!(app.count(stored).await, 1);
    page.open(&format!("{}/ui/publish", app.base)).await;
    page.type_into("#field-title", "without tags").await;
    page.click("form.form button.primary").await;
    page.wait_until("document.querySelector('[data-error-of=tags]').textContent.includes('required')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_shows_what_was_just_done_in_the_browser() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/sources/new?provider=github", app.base)).await;
    page.assert_clean().await;
    page.type_into("#field-name", "our repository").await;
    page.type_into("[name='verify.secret']", "a secret of github").await;
    page.type_into("#field-tags", "ci").await;
    page.click("form.form button.primary").await;
    page.wait_until("/^.ui.sources.\\d+$/.test(location.pathname)").await;
    assert!(page.text_of("#example").await.contains(&format!("{}/in/", app.base)));
    page.assert_clean().await;
    page.click(".head button.danger").await;
    page.click("dialog button.danger").await;
    page.wait_until("location.pathname === '/ui/sources'").await;
    page.open(&format!("{}/ui/audit", app.base)).await;
    let rows = page.texts_of("tbody tr").await;
    assert!(rows[0].contains("source.deleted") && rows[1].contains("source.created"), "{rows:?}");
    assert!(rows[1].contains("127.0.0.1") && rows[1].contains("our repository"), "{rows:?}");
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_never_show_the_password_of_the_database() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let password = url::Url::parse(&app.url).expect("a URL").password().expect("a password").to_owned();
    let page = browser.open(&format!("{}/ui/settings", app.base)).await;
    let shown = page.value_of("document.documentElement.outerHTML").await;
    let shown = shown.as_str().expect("text");
    assert!(shown.contains("--database-url") && !shown.contains(&password), "{shown}");
    for width in [1440, 390] {
        page.resize(width, 844).await;
        assert!(!page.is_too_wide().await, "{width}");
    }
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_administration_fit_a_phone_and_are_clean_in_the_dark() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.put("/event-types/order.charged", &json!({"schema": {"type": "object"}})).await.expect(201);
    let source = app.source(json!({"name": "a source", "tags": ["ci"], "verify": {"scheme": "none"}})).await;
    app.publish_tagged("reports").await;
    let operation = app.post("/events/cancel", &json!({"filter": {}, "reason": "a test"})).await.expect(202).json();
    let page = browser.open(&format!("{}/ui/audit", app.base)).await;
    page.prefer_dark(true).await;
    page.resize(390, 844).await;
    for path in [
        "/ui/audit".to_owned(),
        "/ui/event-types".to_owned(),
        "/ui/event-types/order.charged".to_owned(),
        "/ui/sources".to_owned(),
        format!("/ui/sources/{}", source["id"]),
        "/ui/operations".to_owned(),
        format!("/ui/operations/{}", operation["id"]),
        "/ui/namespaces/default".to_owned(),
        "/ui/keys".to_owned(),
    ] {
        page.open(&format!("{}{path}", app.base)).await;
        assert!(!page.is_too_wide().await, "{path}");
        page.assert_clean().await;
    }
}
