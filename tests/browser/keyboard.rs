//! The dashboard with the keyboard alone.

use crate::support::App;
use crate::support::browser::Browser;

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_event_is_found_read_and_retried_with_the_keyboard_alone() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let ids = app.publish_failures(3, "billing", "card declined").await;
    let page = browser.open(&app.base).await;
    page.press("/").await;
    assert_eq!(page.focused().await, "Search events");
    page.type_keys("status:FAILED").await;
    page.press("Enter").await;
    page.wait_until("location.pathname === '/ui/events'").await;
    for (key, row) in [("j", 2), ("j", 1), ("j", 0), ("j", 0), ("k", 1)] {
        page.press(key).await;
        assert_eq!(page.focused().await, ids[row].to_string(), "{key}");
    }
    page.press("x").await;
    page.press("Enter").await;
    page.wait_until(&format!("location.pathname === '/ui/events/{}'", ids[1])).await;
    assert!(page.text_of("main").await.contains("card declined"));
    page.tab_to("button[data-action][data-path$=retry]").await;
    page.press("Enter").await;
    page.wait_for("dialog[open]").await;
    page.assert_clean().await;
    page.press("Escape").await;
    page.wait_until("!document.querySelector('dialog')").await;
    assert_eq!(page.focused().await, "Retry", "where it was before");
    page.press("Enter").await;
    page.tab_to("dialog button.primary").await;
    page.press("Enter").await;
    page.wait_for("[data-live=state] .state.PENDING").await;
    assert_eq!(app.status(ids[1]).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_lead_to_pages_to_help_and_to_the_palette() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let id = app.publish_tagged("reports").await;
    let page = browser.open(&app.base).await;
    for (key, path) in [("w", "/ui/workers"), ("t", "/ui/tags"), ("e", "/ui/events"), ("o", "/")] {
        page.press("g").await;
        page.press(key).await;
        page.wait_until(&format!("location.pathname === '{path}' && document.readyState === 'complete'")).await;
    }
    page.press("?").await;
    assert!(page.text_of("dialog").await.contains("next and previous row"));
    page.assert_clean().await;
    page.press("j").await;
    page.press("Escape").await;
    page.wait_until("!document.querySelector('dialog')").await;
    page.press("Control+k").await;
    page.wait_until("document.activeElement.matches('.palette input')").await;
    page.assert_clean().await;
    let commands = page.texts_of(".palette li").await;
    assert_eq!(commands.iter().filter(|command| ["Waybill", "Overview"].contains(&command.as_str())).count(), 1);
    for command in ["Publish an event", "Switch between light and dark", "Pause or go on"] {
        assert!(commands.iter().any(|known| known == command), "{command} in {commands:?}");
    }
    page.type_keys("pause").await;
    page.press("Enter").await;
    page.wait_until("!document.querySelector('dialog') && document.querySelector('.live').dataset.state === 'paused'")
        .await;
    page.press("p").await;
    page.press("Control+k").await;
    page.wait_until("document.activeElement.matches('.palette input')").await;
    page.type_keys("wor").await;
    page.press("Enter").await;
    page.wait_until("location.pathname === '/ui/workers' && document.readyState === 'complete'").await;
    for (text, path) in [(id.to_string(), format!("/ui/events/{id}")), ("tag:reports".into(), "/ui/events".into())] {
        page.press("Control+k").await;
        page.wait_until("document.activeElement.matches('.palette input')").await;
        page.type_keys(&text).await;
        page.press("Enter").await;
        page.wait_until(&format!("location.pathname === '{path}' && document.readyState === 'complete'")).await;
    }
    assert_eq!(page.value_of("document.querySelector('#filter').value").await, "tag:reports");
    page.press("/").await;
    assert_eq!(page.value_of("document.activeElement.id").await, "filter");
    page.press("Escape").await;
    assert_eq!(page.value_of("document.activeElement.tagName").await, "BODY");
    page.assert_clean().await;
}
