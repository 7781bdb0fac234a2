//! The page of an event in a browser.

use serde_json::json;

use crate::support::App;
use crate::support::browser::{Browser, Page};
use crate::support::work::W1;

async fn open<'b>(browser: &'b Browser, app: &App, id: i64) -> Page<'b> {
    browser.open(&format!("{}/ui/events/{id}", app.base)).await
}

/// Publishes an event that has failed once and for all.
async fn failed(app: &App, error: &str) -> i64 {
    let id =
        app.publish(json!({"title": "Charge card", "tags": "a", "max_retries": 1, "payload": {"order": 17}})).await;
    app.claim_one("a", W1).await;
    app.post(&format!("/events/{id}/fail"), &json!({"worker_id": W1, "error_message": error})).await.expect(400);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_a_worker_without_asking_for_the_payload_again_and_stops_with_it() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let payload = json!({"text": "x".repeat(100_000)});
    let id = app.publish(json!({"title": "A report", "tags": "a", "payload": payload})).await;
    let page = open(&browser, &app, id).await;
    assert_eq!(page.text_of("[data-live=state]").await, "PENDING");
    page.requests().await;
    app.claim_one("a", W1).await;
    page.wait_until("document.querySelector('[data-live=life]').innerText.includes('PICKED')").await;
    assert!(page.text_of("[data-live=state]").await.contains("PROCESSING"));
    app.post(&format!("/events/{id}/complete"), &json!({"worker_id": W1, "result": {"ok": true}})).await.expect(200);
    page.wait_until("document.querySelector('[data-live=state]').innerText === 'COMPLETED'").await;
    page.wait_until("document.querySelector('.live').dataset.state === 'over'").await;
    assert!(page.text_of("[data-live=result]").await.contains("\"ok\": true"));
    assert!(page.value_of("document.getElementById('payload-text') !== null").await == true, "the payload has stayed");
    let requests = page.requests().await;
    assert!(!requests.is_empty() && requests.iter().all(|url| url.contains("part=live")), "{requests:?}");
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_event_is_retried_from_its_page_with_the_keyboard_alone() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let id = failed(&app, "card declined").await;
    let page = open(&browser, &app, id).await;
    page.tab_to("[data-live=actions] button[data-action]").await;
    page.press("Enter").await;
    page.wait_for("dialog[open]").await;
    page.assert_clean().await;
    page.tab_to("dialog button.primary").await;
    page.press("Enter").await;
    page.wait_until("document.querySelector('[data-live=state]').innerText === 'PENDING'").await;
    page.wait_until("document.querySelector('[data-live=actions] button').innerText === 'Cancel'").await;
    assert_eq!(app.status(id).await, "PENDING");
    assert!(page.text_of("[data-live=life]").await.contains("RETRIED"));
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_cancelled_with_a_reason() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let id = app.publish_tagged("a").await;
    let page = open(&browser, &app, id).await;
    page.click("[data-live=actions] button.danger").await;
    page.type_into("dialog input", "it's a <mistake> & more").await;
    page.click("dialog button.danger").await;
    page.wait_until("document.querySelector('[data-live=state]').innerText === 'CANCELLED'").await;
    assert_eq!(app.event(id).await["cancel_reason"], "it's a <mistake> & more");
    assert!(page.text_of("[data-live=life]").await.contains("it's a <mistake> & more"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_titles_large_payloads_and_long_errors_are_shown_as_text_on_a_clean_page() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let title = "<script>document.title='hit'</script> \u{202e}abc";
    let payload = json!({"a": "</pre><script>alert(1)</script>", "n": "y".repeat(1_000_000)});
    let id = app.publish(json!({"title": title, "tags": "a", "payload": payload, "max_retries": 1})).await;
    app.claim_one("a", W1).await;
    let error = "<img src=x onerror=alert(1)>\n".to_owned() + &"e\n".repeat(4_900);
    app.post(&format!("/events/{id}/fail"), &json!({"worker_id": W1, "error_message": error})).await.expect(400);
    let page = open(&browser, &app, id).await;
    assert!(page.text_of("h1").await.contains("<script>document.title='hit'</script>"));
    assert!(page.value_of("document.title").await.as_str().expect("a title").contains("<script>"));
    assert_eq!(page.value_of("document.querySelectorAll('main img, main script').length").await, 0);
    assert_eq!(page.value_of("document.querySelector('#payload-text').open").await, false);
    let fold = "details[id^=error-] summary";
    assert!(page.text_of(fold).await.contains("<img src=x onerror=alert(1)> …"));
    page.click(fold).await;
    page.wait_until("document.querySelector('details[id^=error-] pre').innerText.split('\\n').length > 4900").await;
    page.click("#payload-text summary").await;
    page.wait_until("document.querySelector('#payload-text').open").await;
    assert!(!page.is_too_wide().await);
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_fits_a_phone_and_is_readable_in_dark_colours() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let id = failed(&app, &"a-very-long-word-without-spaces".repeat(20)).await;
    let page = open(&browser, &app, id).await;
    for (width, dark) in [(1440, false), (1440, true), (390, false), (390, true)] {
        page.resize(width, 844).await;
        page.prefer_dark(dark).await;
        assert!(!page.is_too_wide().await, "{width}");
        page.assert_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folds_that_are_open_stay_open_when_the_page_is_updated() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let error = "a first line\nand a second one";
    app.post(&format!("/events/{id}/fail"), &json!({"worker_id": W1, "error_message": error})).await.expect(200);
    let page = open(&browser, &app, id).await;
    page.click("details[id^=error-] summary").await;
    page.click("h1").await;
    app.operate(id, "cancel").await.expect(200);
    page.wait_until("document.querySelector('[data-live=life]').innerText.includes('CANCELLED')").await;
    assert_eq!(page.value_of("document.querySelector('details[id^=error-]').open").await, true);
}
