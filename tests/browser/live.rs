//! Pages that stay open: what changes by itself, and what does not.

use serde_json::json;

use crate::support::App;
use crate::support::browser::Browser;

const ROWS: &str = "document.querySelectorAll('tr[data-id]').length";

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_wait_behind_a_button_and_shown_ones_change_in_place() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/events?q=status:PENDING", app.base)).await;
    let first = app.publish_tagged("a").await;
    page.value_of("refresh()").await;
    assert_eq!(page.text_of(".new-rows").await, "1 new, show");
    page.click(".new-rows").await;
    page.wait_for(&format!("tr[data-id='{first}']")).await;
    // Whoever is typing keeps the text.
    page.type_into("#filter", "status:PENDING tag:").await;
    for _ in 0..2 {
        app.publish_tagged("a").await;
    }
    page.value_of("refresh()").await;
    assert_eq!(page.text_of(".new-rows").await, "2 new, show");
    assert_eq!(page.value_of(ROWS).await, 1);
    assert_eq!(page.value_of("document.querySelector('#filter').value").await, "status:PENDING tag:");
    page.click(&format!("[data-select][value='{first}']")).await;
    page.click(".new-rows").await;
    page.wait_until(&format!("{ROWS} === 3")).await;
    assert_eq!(page.value_of("document.querySelector('[data-select]:checked').value").await, first.to_string());
    assert_eq!(page.text_of("[data-live=total]").await, "3");
    // A row that has left the list is crossed out, and does not make others jump.
    app.operate(first, "cancel").await.expect(200);
    app.publish_tagged("a").await;
    page.value_of("refresh()").await;
    assert_eq!(page.value_of(ROWS).await, 3);
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_have_left_a_list_are_crossed_out() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let [older, newer] = [app.publish_tagged("a").await, app.publish_tagged("a").await];
    let page = browser.open(&format!("{}/ui/events?q=status:PENDING", app.base)).await;
    app.operate(newer, "cancel").await.expect(200);
    page.value_of("refresh()").await;
    page.wait_for(&format!("tr.gone[data-id='{newer}']")).await;
    app.operate(older, "cancel").await.expect(200);
    page.value_of("refresh()").await;
    page.wait_for(&format!("tr.gone[data-id='{older}']")).await;
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_fetched_while_paused_or_in_the_background() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.publish_tagged("a").await;
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    page.press("p").await;
    page.wait_until("document.querySelector('.live').textContent === 'paused'").await;
    page.requests().await;
    page.value_of("refreshIfSeen()").await;
    assert_eq!(page.requests().await, [""; 0]);
    page.open(&format!("{}/ui/workers", app.base)).await;
    assert_eq!(page.text_of(".live").await, "paused", "on other pages, too");
    page.click(".live").await;
    page.wait_until("document.querySelector('.live').textContent === 'live'").await;
    page.value_of("Object.defineProperty(document, 'hidden', {value: true, configurable: true})").await;
    page.value_of("refresh()").await;
    page.requests().await;
    page.value_of("refreshIfSeen()").await;
    assert_eq!(page.requests().await, [""; 0]);
    page.value_of("delete document.hidden && document.dispatchEvent(new Event('visibilitychange'))").await;
    page.wait_until("performance.getEntriesByType('resource').some(entry => entry.initiatorType === 'fetch')").await;
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_shown_and_comes_back_by_itself() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.publish_tagged("a").await;
    let page = browser.open(&app.base).await;
    page.set_offline(true).await;
    page.value_of("refresh()").await;
    assert_eq!(page.text_of(".live").await, "no connection");
    page.set_offline(false).await;
    app.publish(json!({"title": "b", "tags": "a"})).await;
    page.wait_until("document.querySelector('.live').textContent === 'live'").await;
    page.wait_until("document.querySelector('.figure .value').textContent === '2'").await;
    page.console_errors().await;
    page.assert_clean().await;
}
