//! Every page, with data and without: readable in light and dark, and with nothing cut off.

use serde_json::json;

use crate::support::browser::{Browser, Page};
use crate::support::pages::app_with_rows;
use crate::support::sessions::COOKIE_NAME;
use crate::support::ui_pages::{LISTS_AND_FORMS, missing_from, pages_of_one};
use crate::support::{App, database};

/// What scripts ask for is JSON, and no page.
const NOT_FOR_PEOPLE: &str = "/ui/session";

/// Opens the breakers of all endpoints, which hold what waits for them.
const OPEN_BREAKERS: &str = "
    INSERT INTO waybill.endpoints (namespace_id, url, failures_in_row, opened_at, paused_until)
    SELECT DISTINCT namespace_id, url, 7, now(), now() + interval '1 hour' FROM waybill.subscriptions
    ON CONFLICT (namespace_id, url) DO UPDATE SET opened_at = now(), paused_until = excluded.paused_until";

/// Logs the browser in as an administrator.
async fn log_in(app: &App, browser: &Browser) {
    let key = app.make_key(json!({"scopes": ["admin"]})).await;
    let session = app.log_in(&key.key).await;
    browser.open(&format!("{}/login", app.base)).await.set_cookie(COOKIE_NAME, &session).await;
}

/// Returns what of the page is cut off, or has to be scrolled to sideways.
async fn cut_off(page: &Page<'_>, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for width in [1280, 1024, 390] {
        page.resize(width, 844).await;
        if page.is_too_wide().await {
            found.push(format!("{path} at {width}"));
        }
        found.extend(page.cut_tables().await.into_iter().map(|table| format!("{path} at {width}: {table}")));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_with_data_is_readable_in_light_and_dark_and_nothing_is_cut_off() {
    let (app, browser) = (app_with_rows().await, Browser::start().await);
    app.put("/event-types/order.paid", &json!({"description": "An order was paid."})).await.expect(201);
    app.publish_failures(2, "billing", &"a long error ".repeat(30)).await;
    let named = json!({"name": "customer relations", "event_types": ["customer.updated"]});
    app.subscribe("http://127.0.0.1:9/customers", named).await;
    let given_up = app.publish_typed("customer.updated", json!(1)).await;
    let delivery = app.only_delivery(given_up).await;
    app.operate_on_delivery(delivery, "dead-letter?reason=the%20receiver%20answered%20500").await.expect(200);
    app.publish_typed("customer.updated", json!(2)).await;
    database::execute(&app.url, OPEN_BREAKERS).await;
    app.engine().record_stats().await.expect("stats");
    let mut paths: Vec<String> = LISTS_AND_FORMS.map(str::to_owned).into();
    paths.extend(pages_of_one(&app).await);
    assert_eq!(missing_from(paths.iter().map(String::as_str)), [""; 0]);
    log_in(&app, &browser).await;
    let page = browser.open(&app.base).await;
    let mut cut = Vec::new();
    for path in paths.iter().filter(|path| *path != NOT_FOR_PEOPLE) {
        page.open(&format!("{}{path}", app.base)).await;
        for (dark, width) in [(false, 1280), (true, 1280), (false, 390)] {
            page.prefer_dark(dark).await;
            page.resize(width, 844).await;
            page.assert_clean().await;
        }
        cut.extend(cut_off(&page, path).await);
    }
    assert!(cut.is_empty(), "{cut:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_without_data_is_readable_and_lists_fill_by_themselves() {
    let (app, browser) = (App::with_keys().await, Browser::start().await);
    app.namespace("empty").await;
    log_in(&app, &browser).await;
    let page = browser.open(&app.base).await;
    let mut cut = Vec::new();
    for path in LISTS_AND_FORMS.iter().filter(|path| **path != NOT_FOR_PEOPLE) {
        page.open(&format!("{}{path}?namespace=empty", app.base)).await;
        page.prefer_dark(true).await;
        page.assert_clean().await;
        page.prefer_dark(false).await;
        page.assert_clean().await;
        cut.extend(cut_off(&page, path).await);
        // Only a page that is renewed says that it is live, and every list is.
        let (is_live, says_so) = (
            page.value_of("document.querySelector('[data-live]') !== null").await,
            page.value_of("!document.querySelector('.live').hidden").await,
        );
        assert_eq!(is_live, says_so, "{path}");
        let is_form = path.ends_with("/new") || ["/ui/publish", "/ui/settings", "/ui/namespaces"].contains(path);
        assert_eq!(is_live, !is_form, "{path}");
    }
    assert!(cut.is_empty(), "{cut:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_fills_and_the_buttons_of_a_subscription_follow_its_breaker() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/subscriptions", app.base)).await;
    page.wait_for(".empty").await;
    app.subscribe("http://127.0.0.1:9/hook", json!({"name": "orders"})).await;
    page.wait_until("!document.querySelector('.new-rows').hidden").await;
    page.click(".new-rows").await;
    page.click("td.name a").await;
    page.wait_for("[data-live=actions]").await;
    assert!(!page.text_of("[data-live=actions]").await.contains("Resume"));
    database::execute(&app.url, OPEN_BREAKERS).await;
    page.wait_until("document.querySelector('[data-live=actions]').innerText.includes('Resume')").await;
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bar_of_a_phone_has_five_pages_the_present_one_and_more() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/audit", app.base)).await;
    page.resize(390, 844).await;
    let shown = "[...document.querySelectorAll('.rail li')].filter(item => item.offsetParent !== null).map(item => item.innerText.trim())";
    assert_eq!(page.value_of(shown).await, json!(["Overview", "Events", "Workers", "Tags", "Audit"]));
    let fits = "[...document.querySelectorAll('.rail li, .show-more')].every(item => item.getBoundingClientRect().right <= innerWidth)";
    assert_eq!(page.value_of(fits).await, true);
    page.assert_clean().await;
    page.click(".show-more").await;
    page.assert_clean().await;
    assert_eq!(page.value_of(&format!("{shown}.length")).await, 14);
    page.click(".rail a[href='/ui/dead-letters']").await;
    page.wait_until("location.pathname === '/ui/dead-letters'").await;
    assert_eq!(page.value_of(&format!("{shown}.at(-1)")).await, "Dead letters");
    page.open(&app.base).await;
    assert_eq!(page.value_of(shown).await, json!(["Overview", "Events", "Workers", "Tags", "Deliveries"]));
}
