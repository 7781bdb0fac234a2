//! Deliveries and dead letters in a browser: one, the selected, and all that match.

use serde_json::{Value, json};

use super::pressing::press;
use crate::support::App;
use crate::support::browser::Browser;
use crate::support::receiver::{Receiver, Reply};
use crate::support::records::{app_that_sends_nothing, one_attempt};

/// Publishes events that are refused and given up. Returns their ids.
async fn given_up(app: &App, receiver: &Receiver, count: usize) -> Vec<i64> {
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(app.publish_and_fail(receiver, "order.paid", json!({"order": number})).await);
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn all_dead_letters_that_match_are_replayed_with_progress_and_arrive() {
    let (app, receiver, browser) = (App::start().await, Receiver::start().await, Browser::start().await);
    given_up(&app, &receiver, 5).await;
    receiver.received(5).await;
    let page = browser.open(&format!("{}/ui/dead-letters?reason=exhausted", app.base)).await;
    page.assert_clean().await;
    assert_eq!(page.value_of("document.querySelector('button[data-bulk]').disabled").await, true);
    page.click("input[data-all-match]").await;
    press(&page, "button[data-bulk]", "Replay").await;
    page.wait_until("document.querySelector('dialog[open] h2')?.textContent === 'Replay 5 dead letters'").await;
    page.type_into("dialog[open] input[name=reason]", "receiver mended").await;
    press(&page, "dialog[open] .actions button", "Replay 5 dead letters").await;
    page.wait_until("document.querySelector('dialog[open] p')?.textContent.startsWith('COMPLETED: 5 of 5 done')").await;
    let requests = receiver.received(10).await;
    assert_eq!(requests[5..].len(), 5);
    let letters = app.dead_letters("replayed=true").await;
    assert!(
        letters.len() == 5 && letters.iter().all(|letter| letter["replay"]["reason"] == "receiver mended"),
        "{letters:?}"
    );
    press(&page, "dialog[open] .actions button", "Close").await;
    page.wait_until("document.querySelectorAll('td .state.good').length === 5").await;
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_selected_dead_letters_are_replayed() {
    let (app, receiver, browser) = (App::start().await, Receiver::start().await, Browser::start().await);
    given_up(&app, &receiver, 3).await;
    let page = browser.open(&format!("{}/ui/dead-letters", app.base)).await;
    page.click("tbody tr:first-child input[data-select]").await;
    press(&page, "button[data-bulk]", "Replay").await;
    press(&page, "dialog[open] .actions button", "Replay 1 dead letter").await;
    let request = receiver.received(4).await.pop().expect("a request");
    assert_eq!(request.json(), json!({"order": 2}), "the newest stands first");
    assert_eq!(app.dead_letters("replayed=true").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_with_another_payload() {
    let (app, receiver, browser) = (App::start().await, Receiver::start().await, Browser::start().await);
    let event = given_up(&app, &receiver, 1).await[0];
    let letter = app.open_dead_letter(event).await["id"].clone();
    let page = browser.open(&format!("{}/ui/dead-letters/{letter}", app.base)).await;
    page.assert_clean().await;
    press(&page, "form button", "Edit the payload").await;
    let offered = page.value_of("document.querySelector('#payload').value").await;
    assert_eq!(serde_json::from_str::<Value>(offered.as_str().expect("text")).expect("JSON"), json!({"order": 0}));
    page.type_into("#payload", r#"{"order": 12345678901234567890}"#).await;
    page.type_into("#reason", "the order was wrong").await;
    press(&page, "form button", "Replay").await;
    let request = receiver.received(2).await.remove(1);
    assert_eq!(request.text(), r#"{"order": 12345678901234567890}"#);
    page.wait_until("document.querySelector('#payload') === null").await;
    assert!(page.text_of("dl.facts").await.contains("the order was wrong"));
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_cancelled_dead_lettered_and_retried() {
    let (app, browser) = (app_that_sends_nothing().await, Browser::start().await);
    app.subscribe("https://shop.example/hook", json!({})).await;
    for _ in 0..3 {
        app.publish_typed("order.paid", json!({})).await;
    }
    let page = browser.open(&format!("{}/ui/deliveries?status=PENDING", app.base)).await;
    page.assert_clean().await;
    let newest = page.attribute_of("tbody tr:first-child", "data-id").await.expect("an id");
    page.click("tbody tr:first-child input[data-select]").await;
    press(&page, "button[data-bulk]", "Dead-letter").await;
    page.type_into("dialog[open] input[name=reason]", "customer left").await;
    press(&page, "dialog[open] .actions button", "Dead-letter 1 deliveries").await;
    page.wait_until("document.querySelector('.notice')?.textContent === 'Dead-letter: 1 of 1 deliveries'").await;
    assert_eq!(app.dead_letters("reason=manual").await[0]["detail"], "customer left");
    page.click("input[data-all-match]").await;
    press(&page, "button[data-bulk]", "Cancel").await;
    page.wait_until("document.querySelector('dialog[open] h2')?.textContent === 'Cancel 2 deliveries'").await;
    press(&page, "dialog[open] .actions button", "Cancel 2 deliveries").await;
    page.wait_until("document.querySelector('dialog[open] p')?.textContent.startsWith('COMPLETED: 2 of 2 done')").await;
    let own = format!("{}/ui/deliveries/{newest}", app.base);
    page.open(&own).await;
    press(&page, "main .actions button", "Retry").await;
    press(&page, "dialog[open] .actions button", "Retry").await;
    page.wait_for(".head .state.PENDING").await;
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_about_pushes_fit_a_phone() {
    let (app, receiver, browser) = (App::start().await, Receiver::start().await, Browser::start().await);
    receiver.always(Reply::status(500).body("x".repeat(2_000)));
    let event = given_up(&app, &receiver, 1).await[0];
    let (delivery, letter) = (app.only_delivery(event).await, app.open_dead_letter(event).await["id"].clone());
    let subscription = app.delivery(delivery).await["subscription_id"].clone();
    for path in [
        "/ui/subscriptions".to_owned(),
        "/ui/subscriptions/new".to_owned(),
        format!("/ui/subscriptions/{subscription}"),
        "/ui/deliveries".to_owned(),
        format!("/ui/deliveries/{delivery}"),
        "/ui/dead-letters".to_owned(),
        format!("/ui/dead-letters/{letter}"),
    ] {
        let page = browser.open(&format!("{}{path}", app.base)).await;
        page.resize(390, 844).await;
        assert!(!page.is_too_wide().await, "{path}");
        page.prefer_dark(true).await;
        page.assert_clean().await;
        page.prefer_dark(false).await;
    }
}
