//! The list of events in a browser: filters, hostile texts, and actions on many.

use serde_json::{Value, json};

use crate::support::browser::{Browser, Page};
use crate::support::sessions::COOKIE_NAME;
use crate::support::{App, until};

/// Titles that a page could stumble over.
const HOSTILE: [&str; 4] = [
    "<script>document.title = 'run'</script><img src=x onerror=alert(1)>",
    "\u{202e}\u{05d7}\u{05e9}\u{05d1}\u{05d5}\u{05e0}\u{05d9}\u{05ea} 42 \u{0641}\u{0627}\u{062a}\u{0648}\u{0631}\u{0629}",
    "🧾👩‍🚀 invoice",
    "' \" & \\ `",
];

#[tokio::test(flavor = "multi_thread")]
async fn events_are_filtered_and_the_address_says_how() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    assert!(page.text_of("main").await.contains("No events yet"));
    page.assert_clean().await;
    let [billing, mail] = [app.publish_tagged("billing").await, app.publish_tagged("mail").await];
    page.open(&format!("{}/ui/events", app.base)).await;
    for (words, ids) in [
        ("tag:billing", vec![billing]),
        ("status:pending since:1h", vec![mail, billing]),
        ("status:FAILED", vec![]),
        ("until:1h", vec![]),
    ] {
        page.type_into("#filter", words).await;
        page.press("Enter").await;
        let query: String = url::form_urlencoded::byte_serialize(words.as_bytes()).collect();
        page.wait_until(&format!("location.search.includes('q={query}')")).await;
        let shown = page.value_of("[...document.querySelectorAll('tr[data-id]')].map(row => +row.dataset.id)").await;
        assert_eq!(shown, json!(ids), "{words}");
    }
    assert!(page.text_of("main").await.contains("No event matches"));
    page.assert_clean().await;
    page.type_into("#filter", "since:yesterday").await;
    page.press("Enter").await;
    assert!(page.text_of("[role=alert]").await.contains("since:yesterday"));
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_titles_are_text_on_every_page() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let long = "x".repeat(255);
    let mut paths = vec!["/ui/events".to_owned(), "/ui/tags".into(), "/".into()];
    for title in HOSTILE.iter().copied().chain([long.as_str()]) {
        let id = app.publish(json!({"title": title, "tags": "<b>tag</b>,a b", "payload": title})).await;
        paths.push(format!("/ui/events/{id}"));
    }
    let page = browser.open(&app.base).await;
    page.resize(390, 844).await;
    for path in paths {
        page.open(&format!("{}{path}", app.base)).await;
        assert_eq!(
            page.value_of("document.querySelectorAll('main script, main img, main b').length").await,
            0,
            "{path}"
        );
        assert!(page.value_of("document.title").await.as_str().expect("a title").contains("Waybill"), "{path}");
        assert!(!page.is_too_wide().await, "{path}");
        page.assert_clean().await;
    }
    page.open(&format!("{}/ui/tags", app.base)).await;
    page.click("tr[data-id='a b'] td[data-label=waiting] a").await;
    page.wait_for("tr[data-id]").await;
    assert_eq!(page.texts_of("tr[data-id]").await.len(), 5, "a tag with a space is one word");
}

/// Opens the failed events as an operator called ann.
async fn open_failures<'a>(app: &App, browser: &'a Browser) -> Page<'a> {
    let key = app.make_key(json!({"name": "ann", "scopes": ["read", "operate", "reveal"]})).await;
    let session = app.log_in(&key.key).await;
    let page = browser.open(&format!("{}/login", app.base)).await;
    page.set_cookie(COOKIE_NAME, &session).await;
    page.open(&app.base).await;
    page.click(".figure.bad").await;
    page.wait_for("tr[data-id]").await;
    page
}

async fn operation(app: &App) -> Value {
    app.get("/operations").await.expect(200).json()["operations"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_siblings_are_retried_after_a_preview_with_progress() {
    let (app, browser) = (App::with_keys().await, Browser::start().await);
    let ids = app.publish_failures(200, "billing", "card declined").await;
    let page = open_failures(&app, &browser).await;
    assert!(page.text_of("main").await.contains("all 200 that match"));
    page.click("[data-all-match]").await;
    page.click("[data-bulk][data-verb=Retry]").await;
    let preview = page.text_of("dialog").await;
    assert!(preview.contains("Retry 200 events") && preview.contains(&format!("{} Charge order", ids[0])), "{preview}");
    page.assert_clean().await;
    page.type_into("dialog [name=reason]", "the bank is back").await;
    page.click("dialog button.primary").await;
    page.wait_until("document.querySelector('dialog')?.innerText.includes('COMPLETED: 200 of 200 done')").await;
    page.assert_clean().await;
    page.press("Escape").await;
    page.wait_until("!document.querySelector('dialog') && !document.querySelector('tr[data-id]')").await;
    let left = page.text_of("main").await;
    assert!(left.contains("No event matches.") && left.contains("all 0 that match"), "{left}");
    assert!(left.contains("Retry 200 events: COMPLETED: 200 of 200 done"), "{left}");
    let unticked = "document.querySelector('[data-all-match]').checked || document.querySelector('[rel=next]')";
    assert!(matches!(page.value_of(unticked).await, Value::Bool(false) | Value::Null), "{left}");
    page.assert_clean().await;
    page.click(".outcome a:nth-of-type(2)").await;
    page.wait_until("document.querySelectorAll('.state.PENDING').length === 50").await;
    page.open(&format!("{}/ui/events?q=status:FAILED", app.base)).await;
    let done = operation(&app).await;
    assert_eq!(
        (&done["actor"], &done["reason"], &done["done"]),
        (&"ann".into(), &"the bank is back".into(), &200.into())
    );
    let log = app.event(ids[0]).await["logs"].to_string();
    assert!(log.contains("\"ann\"") && app.status(ids[199]).await == "PENDING", "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_stopped_in_the_middle() {
    let (app, browser) = (App::with_keys().await, Browser::start().await);
    app.publish_failures(60, "billing", "card declined").await;
    let page = open_failures(&app, &browser).await;
    page.click("[data-all-match]").await;
    page.click("[data-bulk][data-verb=Retry]").await;
    page.type_into("dialog [name=per_second]", "2").await;
    page.click("dialog button.primary").await;
    page.wait_for("dialog progress").await;
    until("it has begun", async || operation(&app).await["done"].as_i64() > Some(0)).await;
    page.click("dialog button.danger").await;
    page.wait_until("document.querySelector('dialog')?.innerText.includes('CANCELLED')").await;
    assert!(operation(&app).await["done"].as_i64() < Some(60));
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn some_events_are_selected_and_cancelled() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let ids = [app.publish_tagged("a").await, app.publish_tagged("a").await, app.publish_tagged("a").await];
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    let is_off = "document.querySelector('[data-verb=Cancel]').disabled";
    assert_eq!(page.value_of(is_off).await, true, "nothing is selected");
    for id in &ids[..2] {
        page.click(&format!("[data-select][value='{id}']")).await;
    }
    page.click("[data-bulk][data-verb=Cancel]").await;
    assert!(page.text_of("dialog h2").await.contains("Cancel 2 events"));
    assert_eq!(page.texts_of("dialog .actions button").await, ["Copy as curl", "Cancel 2 events", "Back"]);
    page.type_into("dialog [name=reason]", "the customer has left").await;
    page.assert_clean().await;
    page.click("dialog button.danger").await;
    page.wait_until("document.querySelector('dialog')?.innerText.includes('COMPLETED: 2 of 2 done')").await;
    page.wait_until("document.querySelectorAll('.state.CANCELLED').length === 2").await;
    assert_eq!(app.status(ids[2]).await, "PENDING");
    assert_eq!(app.event(ids[0]).await["cancel_reason"], "the customer has left");
    let done = operation(&app).await;
    assert_eq!(done["filter"], json!({"ids": &ids[..2]}));
    page.press("Escape").await;
    page.wait_until("!document.querySelector('dialog')").await;
    assert_eq!(page.value_of(is_off).await, true, "nothing is selected any more");
    page.click(".outcome a").await;
    page.wait_until(&format!("location.pathname === '/ui/operations/{}'", done["id"])).await;
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_whose_dialog_is_closed_leaves_its_progress_above_the_list() {
    let (app, browser) = (App::with_keys().await, Browser::start().await);
    app.publish_failures(30, "billing", "card declined").await;
    let page = open_failures(&app, &browser).await;
    page.click("[data-all-match]").await;
    page.click("[data-bulk][data-verb=Retry]").await;
    page.type_into("dialog [name=per_second]", "20").await;
    page.click("dialog button.primary").await;
    page.wait_for("dialog progress").await;
    page.press("Escape").await;
    page.wait_until("document.querySelector('.outcome')?.innerText.includes('COMPLETED: 30 of 30 done')").await;
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_of_everything_says_so() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.publish_tagged("a").await;
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    page.click("[data-all-match]").await;
    page.click("[data-bulk][data-verb=Cancel]").await;
    let dialog = page.text_of("dialog").await;
    assert!(dialog.contains("Cancel 1 event\n") && dialog.contains("There is no filter"), "{dialog}");
    assert_eq!(page.value_of("document.querySelectorAll('dialog button.primary').length").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_on_a_phone_is_opened_and_selected_with_a_finger_and_shows_its_error() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let ids = app.publish_failures(1, "billing", &"card declined ".repeat(20)).await;
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    page.resize(390, 844).await;
    for css in ["td.title a", "td.select label", "label:has([data-all-match])"] {
        let size = format!(
            "(() => {{ const box = document.querySelector('{css}').getBoundingClientRect(); return Math.min(box.width, box.height) >= 40; }})()"
        );
        assert_eq!(page.value_of(&size).await, true, "{css}");
    }
    let line = "(() => { const box = document.querySelector('td.last-error').getBoundingClientRect(); return box.height > 10 && box.height < 30; })()";
    assert_eq!(page.value_of(line).await, true, "one line of the error");
    let fits =
        "(() => { const table = document.querySelector('.table'); return table.scrollWidth <= table.clientWidth; })()";
    assert_eq!(page.value_of(fits).await, true, "a long error is cut");
    let [box_end, state] =
        ["td.select", ".state"].map(|css| format!("document.querySelector('tbody {css}').getBoundingClientRect()"));
    assert_eq!(page.value_of(&format!("{box_end}.right <= {state}.left")).await, true, "nothing lies on the box");
    assert!(!page.is_too_wide().await);
    page.assert_clean().await;
    page.click("td.title a").await;
    page.wait_until(&format!("location.pathname === '/ui/events/{}'", ids[0])).await;
    page.click("dl.facts a[href*='status%3AFAILED']").await;
    page.wait_for("tr[data-id]").await;
    assert_eq!(
        page.value_of("document.querySelector('#filter').value").await,
        "status:FAILED tag:billing \"card declined card declined card declined\""
    );
}
