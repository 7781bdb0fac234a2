//! Tags in a browser.

use crate::support::App;
use crate::support::browser::Browser;

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_nobody_serves_stands_out_and_leads_to_what_waits() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/tags", app.base)).await;
    assert!(page.text_of("main").await.contains("No events wait"));
    page.assert_clean().await;
    let id = app.publish_tagged("reports").await;
    page.value_of("refresh()").await;
    page.wait_for("tr[data-id=reports] .state.warning").await;
    page.assert_clean().await;
    page.click("tr[data-id=reports] td[data-label=waiting] a").await;
    page.wait_for(&format!("tr[data-id='{id}']")).await;
    assert_eq!(page.value_of("document.querySelector('#filter').value").await, "status:PENDING tag:reports");
}
