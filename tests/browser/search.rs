//! The filter line of the list of events in a browser.

use serde_json::json;

use crate::support::App;
use crate::support::browser::Browser;

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_filter_finds_rows_its_chips_remove_words_and_its_url_can_be_opened_again() {
    let (app, browser) = (App::start().await, Browser::start().await);
    for (title, event_type, order) in
        [("first", "order.paid", 17), ("test", "order.test", 17), ("other", "order.paid", 18)]
    {
        app.publish(
            json!({"title": title, "tags": "a", "event_type": event_type, "payload": {"order": {"id": order}}}),
        )
        .await;
    }
    let titles = "tbody td:nth-child(4)";
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    assert_eq!(page.texts_of(titles).await, ["other", "test", "first"]);
    page.type_into("#filter", "payload.order.id=17 -type:order.test").await;
    page.press("Enter").await;
    page.wait_until("document.querySelectorAll('tbody tr').length === 1").await;
    assert_eq!(page.texts_of(titles).await, ["first"]);
    page.assert_clean().await;
    let address = page.url().await;
    page.tab_to(".chips li:nth-child(2) a").await;
    page.press("Enter").await;
    page.wait_until("document.querySelectorAll('tbody tr').length === 2").await;
    assert_eq!(page.texts_of(titles).await, ["test", "first"]);
    assert_eq!(page.value_of("document.querySelector('#filter').value").await, "payload.order.id=17");
    page.open(&address).await;
    assert_eq!(page.texts_of(titles).await, ["first"]);
    page.resize(390, 844).await;
    assert!(!page.is_too_wide().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_match_a_search_are_cancelled_and_no_others() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let mut ids = Vec::new();
    for order in [17, 17, 18] {
        ids.push(app.publish(json!({"title": "x", "tags": "a", "payload": {"order": order}})).await);
    }
    let page = browser.open(&format!("{}/ui/events?q=payload.order%3D17+-text:y", app.base)).await;
    page.click("[data-all-match]").await;
    page.click("[data-verb=Cancel]").await;
    assert!(page.text_of("dialog[open]").await.contains("2 events"), "{}", page.text_of("dialog[open]").await);
    page.click("dialog[open] button.primary, dialog[open] button.danger").await;
    let path = format!("/events/{}", ids[1]);
    crate::support::until("the events are cancelled", async || app.get(&path).await.json()["status"] == "CANCELLED")
        .await;
    assert_eq!(app.event(ids[2]).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_line_is_completed_with_the_keyboard_alone() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let id = app.publish(json!({"title": "x", "tags": "reports, a b"})).await;
    app.publish_tagged("billing").await;
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    let value = "document.querySelector('#filter').value";
    page.press("/").await;
    page.type_keys("-sta").await;
    page.wait_until("document.querySelector('[role=option]')?.textContent === '-status:'").await;
    page.assert_clean().await;
    for key in ["ArrowDown", "Enter", "ArrowDown", "ArrowDown", "Tab"] {
        page.wait_for("[role=option]").await;
        page.press(key).await;
    }
    assert_eq!(page.value_of(value).await, "-status:PROCESSING ");
    page.type_keys("tag:rep").await;
    page.wait_until("document.querySelector('[role=option]')?.textContent === 'reports'").await;
    page.press("Escape").await;
    assert_eq!(page.value_of("document.querySelector('#filter') === document.activeElement").await, true);
    page.press("Enter").await;
    page.wait_until("document.querySelector('main').textContent.includes('No event matches')").await;
    page.type_into("#filter", "tag:a").await;
    page.wait_until("document.querySelector('[role=option]')?.textContent === 'a b'").await;
    page.press("ArrowDown").await;
    page.assert_clean().await;
    page.press("Enter").await;
    assert_eq!(page.value_of(value).await, "tag:\"a b\" ");
    page.press("Enter").await;
    page.wait_until(&format!(
        "document.querySelectorAll('tr[data-id]').length === 1 && document.querySelector(\"tr[data-id='{id}']\")"
    ))
    .await;
}
