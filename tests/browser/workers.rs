//! Workers in a browser.

use crate::support::App;
use crate::support::browser::Browser;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_appears_and_leads_to_the_events_that_it_holds() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/workers", app.base)).await;
    assert!(page.text_of("main").await.contains(&format!("{}/events/subscribe", app.base)));
    page.assert_clean().await;
    let id = app.publish_tagged("reports").await;
    app.claim("reports", "host:1").await.expect("an event");
    page.value_of("refresh()").await;
    page.wait_for("tr[data-id='host:1']").await;
    assert!(page.text_of("tbody").await.contains("seen"));
    page.assert_clean().await;
    page.click("tr[data-id='host:1'] td.name a").await;
    page.wait_for(&format!("tr[data-id='{id}']")).await;
    assert_eq!(page.value_of("document.querySelector('#filter').value").await, "worker:host:1");
}
