//! `/docs` and the pages of problems.

use crate::support::App;
use crate::support::browser::Browser;

#[tokio::test(flavor = "multi_thread")]
async fn the_documentation_page_shows_the_api_and_asks_no_other_server() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/docs", app.base)).await;
    page.wait_until("document.body.innerText.includes('POST') && document.body.innerText.includes('/events')").await;
    let asked = page.requests().await;
    assert!(asked.contains(&format!("{}/openapi.yaml", app.base)), "{asked:?}");
    assert!(asked.iter().all(|url| url.starts_with(&app.base) || url.starts_with("data:")), "{asked:?}");
    assert_eq!(page.console_errors().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_problem_is_clean_and_fits_a_phone() {
    let (app, browser) = (App::start().await, Browser::start().await);
    let page = browser.open(&format!("{}/problems/lease_lost", app.base)).await;
    assert!(page.text_of("body").await.contains("lease_lost"));
    page.resize(390, 844).await;
    assert!(!page.is_too_wide().await);
    page.assert_clean().await;
}
