//! The overview in a browser.

use crate::support::App;
use crate::support::browser::Browser;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_teaches_and_its_page_comes_to_life_with_the_first_event() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&app.base).await;
    assert!(page.text_of("#step-publish").await.contains(&app.base));
    page.assert_clean().await;
    app.publish_tagged("greetings").await;
    // By itself, within a few seconds.
    page.wait_until("document.querySelector('.figure .value')?.textContent === '1'").await;
    assert!(page.text_of(".attention").await.contains("tag greetings has 1 waiting and no worker"));
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_click_leads_from_a_red_figure_to_the_events_behind_it() {
    let (app, browser) = (App::start().await, Browser::start().await);
    app.publish_failures(3, "billing", "card declined").await;
    app.publish_failures(2, "email", "no route").await;
    app.publish_tagged("reports").await;
    let page = browser.open(&app.base).await;
    assert!(page.text_of(".figure.bad").await.contains('5'));
    let tops = "[...document.querySelectorAll('.chart > svg')].map(chart => chart.getBoundingClientRect().top)";
    assert_eq!(page.value_of(&format!("new Set({tops}).size")).await, 1, "charts stand side by side at one height");
    page.assert_clean().await;
    page.click(".figure.bad").await;
    page.wait_for("tbody tr").await;
    assert_eq!(page.texts_of("tbody tr").await.len(), 5);
    page.open(&app.base).await;
    page.click(".attention .where a").await;
    page.wait_for("tbody tr").await;
    assert_eq!(page.value_of("document.querySelector('#filter').value").await, "status:FAILED since:1h tag:billing");
    assert_eq!(page.texts_of("tbody tr").await.len(), 3);
    assert!(page.text_of("tbody").await.contains("card declined"));
    page.open(&app.base).await;
    page.click("a.button[href*='24h']").await;
    page.wait_until("location.search === '?span=24h'").await;
    page.click(".chart summary").await;
    assert!(page.text_of(".chart details[open] table").await.contains("published"));
    page.value_of("refresh()").await;
    assert!(page.text_of(".chart details[open] table").await.contains("published"), "it stays open");
    page.assert_clean().await;
}
