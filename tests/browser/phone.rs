//! Every page at the width of a phone, and in dark colours.

use serde_json::json;

use crate::support::browser::Browser;
use crate::support::{App, database};

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_a_phone_and_is_readable_in_dark_and_light() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&app.base).await;
    let empty = ["/", "/ui/events", "/ui/workers", "/ui/tags"].map(str::to_owned);
    let filled = fill(&app, &format!("{}:1", "w".repeat(200))).await;
    for (namespace, paths) in [("?namespace=empty", &empty[..]), ("", &filled)] {
        for path in paths {
            page.open(&format!("{}{path}{namespace}", app.base)).await;
            for (dark, width) in [(true, 1280), (true, 390), (false, 390)] {
                page.prefer_dark(dark).await;
                page.resize(width, 844).await;
                assert!(!page.is_too_wide().await, "{path}{namespace} at {width}");
                assert_eq!(page.cut_tables().await, [""; 0], "{path}{namespace} at {width}");
                page.assert_clean().await;
            }
        }
    }
}

/// Makes every part of the pages appear. Returns the paths of pages.
async fn fill(app: &App, worker: &str) -> Vec<String> {
    app.namespace("empty").await;
    app.publish_failures(2, "billing", &"a long error ".repeat(30)).await;
    app.publish(json!({"title": "a ".repeat(120), "tags": "t".repeat(90)})).await;
    let id = app.publish_tagged("reports").await;
    app.claim("reports", worker).await.expect("an event");
    let silent = format!("UPDATE waybill.deliveries SET updated_at = now() - interval '1 hour' WHERE id = {id}");
    database::execute(&app.url, &silent).await;
    app.engine().record_stats().await.expect("stats");
    let paths = ["/", "/?span=7d", "/ui/events", "/ui/workers", "/ui/tags", "/login"].map(str::to_owned);
    paths.into_iter().chain([format!("/ui/events/{id}")]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_switch_between_light_and_dark_is_remembered() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/ui/events", app.base)).await;
    let colour = "getComputedStyle(document.body).backgroundColor";
    let light = page.value_of(colour).await;
    page.click("[data-theme]:not(html)").await;
    assert_ne!(page.value_of(colour).await, light);
    page.open(&app.base).await;
    assert_ne!(page.value_of(colour).await, light);
    page.assert_clean().await;
}
