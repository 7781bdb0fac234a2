//! Subscriptions in a browser: their health, their actions, and the form with its check.

use serde_json::{Value, json};

use super::pressing::{press, press_and_confirm};
use crate::support::browser::Browser;
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, Options, until};

async fn subscription(app: &App, id: &Value) -> Value {
    app.get(&format!("/subscriptions/{id}")).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_is_seen_and_ended() {
    let flags = vec!["--breaker-failures=1".into()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let (receiver, browser) = (Receiver::start().await, Browser::start().await);
    let made = app.subscribe(&receiver.url("/hook"), json!({"name": "orders", "max_attempts": 1})).await;
    app.publish_and_fail(&receiver, "order.paid", json!({})).await;
    until("the breaker is open", async || subscription(&app, &made["id"]).await["endpoint"]["breaker"] == "open").await;
    let page = browser.open(&format!("{}/ui/subscriptions", app.base)).await;
    page.wait_until("document.querySelector('.state.bad')?.textContent.startsWith('breaker open, tries in')").await;
    page.assert_clean().await;
    press(&page, "td a", "orders").await;
    page.wait_until("location.pathname.startsWith('/ui/subscriptions/')").await;
    press_and_confirm(&page, "Resume").await;
    page.wait_for(".head .state.good").await;
    page.assert_clean().await;
    assert_eq!(subscription(&app, &made["id"]).await["endpoint"]["breaker"], "closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_is_sent_and_its_outcome_is_shown() {
    let (app, receiver, browser) = (App::start().await, Receiver::start().await, Browser::start().await);
    let made = app.subscribe(&receiver.url("/hook"), json!({})).await;
    receiver.next(Reply::status(204));
    let page = browser.open(&format!("{}/ui/subscriptions/{}", app.base, made["id"])).await;
    press_and_confirm(&page, "Send a test").await;
    let request = receiver.received(1).await.remove(0);
    assert_eq!(request.header("waybill-event-type"), Some("waybill.test"));
    let answer = page.text_of("dialog[open] dl.answer").await;
    assert!(answer.contains("delivered") && answer.contains("true") && answer.contains("204"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_shows_the_secret_once() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let made = app.subscribe("https://shop.example/hook", json!({})).await;
    let page = browser.open(&format!("{}/ui/subscriptions/{}", app.base, made["id"])).await;
    page.type_into("#overlap_seconds", "60").await;
    press(&page, "form button", "Rotate secret").await;
    let secret = page.text_of("dialog[open] .secret").await;
    assert!(secret.starts_with("whsec_") && secret != made["secret"], "{secret}");
    press(&page, "dialog[open] .actions button", "Close").await;
    page.wait_until("document.querySelector('dialog') === null").await;
    page.wait_for("#overlap_seconds").await;
    assert_eq!(page.value_of("document.documentElement.outerHTML.includes('whsec_')").await, false);
    assert_eq!(subscription(&app, &made["id"]).await["version"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_disabled_enabled_and_deleted() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let made = app.subscribe("https://shop.example/hook", json!({})).await;
    let page = browser.open(&format!("{}/ui/subscriptions/{}", app.base, made["id"])).await;
    press_and_confirm(&page, "Disable").await;
    page.wait_for(".head .state.CANCELLED").await;
    assert_eq!(subscription(&app, &made["id"]).await["is_active"], false);
    press_and_confirm(&page, "Enable").await;
    page.wait_for(".head .state.good").await;
    press_and_confirm(&page, "Delete").await;
    page.wait_until("location.pathname === '/ui/subscriptions'").await;
    app.get(&format!("/subscriptions/{}", made["id"])).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_created_and_its_secret_is_shown() {
    let (app, receiver, browser) = (App::start().await, Receiver::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/subscriptions/new", app.base)).await;
    page.assert_clean().await;
    page.type_into("#name", "orders").await;
    page.type_into("#url", &receiver.url("/hook")).await;
    page.type_into("#event_types", "order.*, user.created").await;
    page.type_into("#filter", r#"{"payload.id": 9007199254740993}"#).await;
    page.type_into("#headers", r#"{"X-Token": "t0k3n"}"#).await;
    press(&page, "form.sheet button", "Create").await;
    assert!(page.text_of("dialog[open] .secret").await.starts_with("whsec_"));
    press(&page, "dialog[open] .actions button", "Close").await;
    page.wait_until("/^\\/ui\\/subscriptions\\/\\d+$/.test(location.pathname)").await;
    app.publish_typed("order.paid", json!({"id": 9_007_199_254_740_993_i64})).await;
    assert_eq!(receiver.received(1).await.remove(0).header("x-token"), Some("t0k3n"));
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_saved_and_a_wrong_filter_shows_its_reason_beside_the_field() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let settings = json!({
        "name": "orders", "headers": {"X-Token": "t"}, "timeout_ms": 500, "transform": {"envelope": true}, "tags": ["shop"],
        "labels": {"region": "eu"}, "rate_per_second": 2.5, "ordering": "by_key", "backoff": {"strategy": "fixed", "seconds": 2},
    });
    let made = app.subscribe("https://shop.example/hook", settings).await;
    let own = format!("{}/ui/subscriptions/{}", app.base, made["id"]);
    let page = browser.open(&format!("{own}/edit")).await;
    page.type_into("#filter", r#"{"payload.amount": {"$gt": true}}"#).await;
    press(&page, "form.sheet button", "Save").await;
    page.wait_until("document.querySelector('#filter-error')?.textContent.includes('filter.payload.amount.$gt')").await;
    assert_eq!(page.attribute_of("#filter", "aria-invalid").await.as_deref(), Some("true"));
    let logged = page.console_errors().await;
    assert!(logged.iter().all(|error| error.contains("status of 400")), "{logged:?}");
    assert_eq!(page.accessibility_violations().await, Vec::<String>::new());
    page.type_into("#filter", r#"{"payload.amount": {"$gt": 10}}"#).await;
    page.type_into("#timeout_ms", "").await;
    press(&page, "form.sheet button", "Save").await;
    page.wait_until(&format!("location.href === {}", json!(own))).await;
    let saved = subscription(&app, &made["id"]).await;
    assert_eq!((&saved["filter"], &saved["timeout_ms"]), (&json!({"payload.amount": {"$gt": 10}}), &json!(10_000)));
    for kept in [
        "name",
        "url",
        "header_names",
        "transform",
        "tags",
        "labels",
        "rate_per_second",
        "ordering",
        "backoff",
        "retry_on",
    ] {
        assert_eq!(saved[kept], made[kept], "{kept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_another_version_changes_nothing() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let made = app.subscribe("https://shop.example/hook", json!({"name": "orders"})).await;
    let page = browser.open(&format!("{}/ui/subscriptions/{}/edit", app.base, made["id"])).await;
    app.patch(&format!("/subscriptions/{}", made["id"]), &json!({"name": "by another"})).await.expect(200);
    page.type_into("#name", "mine").await;
    press(&page, "form.sheet button", "Save").await;
    page.wait_for(".notice.bad").await;
    assert_eq!(subscription(&app, &made["id"]).await["name"], "by another");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_and_a_template_are_checked_while_one_writes() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.publish(
        json!({"title": "x", "event_type": "order.paid", "tags": "shop", "payload": {"order": 17, "amount": 5}}),
    )
    .await;
    let page = browser.open(&format!("{}/ui/subscriptions/new", app.base)).await;
    let result =
        |text: &str| format!("document.querySelector('[data-check-result]')?.textContent.includes({})", json!(text));
    page.type_into("#filter", r#"{"payload.amount": {"$gt": 10}}"#).await;
    page.wait_until(&result("does not match: filter")).await;
    page.type_into("#filter", r#"{"payload.amount": {"$gt": 1}}"#).await;
    page.type_into("#transform-template", r#"{"text": "Order {{ payload.order }}"}"#).await;
    page.wait_until(&result(r#"{"text": "Order 17"}"#)).await;
    assert_eq!(page.text_of("[data-check-result] .state").await, "matches");
    assert_eq!(page.focused().await, "transform.template", "the check leaves the focus where it is");
    page.assert_clean().await;
    page.type_into("#transform-template", "{% if payload %}").await;
    page.wait_until("document.querySelector('#transform-template-error')?.textContent.includes('template')").await;
    page.type_into("#check-event", "999999").await;
    page.type_into("#transform-template", "").await;
    page.click("button[data-check]").await;
    page.wait_until(&result("999999")).await;
}
