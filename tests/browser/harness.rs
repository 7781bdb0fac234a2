//! The harness itself, on small pages: a check that cannot fail proves nothing.

use crate::support::browser::Browser;
use crate::support::receiver::{Receiver, Reply};

/// Serves a page of this content, in the manner of the server's own pages.
async fn serve(body: &str) -> Receiver {
    let server = Receiver::start().await;
    let page = format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>A page</title>\
         <meta name=viewport content='width=device-width, initial-scale=1'><link rel=icon href='data:,'></head>\
         <body><main><h1>A page</h1>{body}</main></body></html>"
    );
    server.always(Reply::ok().header("content-type", "text/html").body(page));
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_page_is_clean() {
    let (server, browser) = (serve("<p>All is well.</p>").await, Browser::start().await);
    let page = browser.open(&server.url("/")).await;
    page.assert_clean().await;
    assert!(page.requests().await.is_empty(), "they were asked for");
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "it is broken")]
async fn a_page_with_an_error_in_its_console_is_not_clean() {
    let server = serve("<script>console.error('it is broken')</script>").await;
    let browser = Browser::start().await;
    browser.open(&server.url("/")).await.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exceptions_and_what_a_policy_forbids_are_errors() {
    let (server, browser) = (serve("<script>nothing.at.all</script>").await, Browser::start().await);
    let page = browser.open(&server.url("/")).await;
    let errors = page.console_errors().await;
    assert!(errors.len() == 1 && errors[0].contains("nothing is not defined"), "{errors:?}");
    let strict =
        Reply::ok().header("content-type", "text/html").header("content-security-policy", "default-src 'none'");
    server.always(strict.body("<title>Strict</title><script>document.title = 'Run'</script>"));
    page.open(&server.url("/strict")).await;
    let errors = page.console_errors().await;
    assert!(errors.iter().any(|error| error.contains("Content Security Policy")), "{errors:?}");
    assert_eq!(page.value_of("document.title").await, "Strict");
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "a request to http://outside.example/picture.png")]
async fn a_page_that_asks_another_server_is_not_clean() {
    let server = serve("<img alt='a picture' src='http://outside.example/picture.png'>").await;
    let browser = Browser::start().await;
    browser.open(&server.url("/")).await.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_other_servers_are_found_however_they_are_made() {
    let other = Receiver::start().await;
    let body = format!(
        "<link rel=stylesheet href='{}'><script>fetch('/own').then(() => fetch('{}')).catch(() => 0); \
         new WebSocket('ws://outside.example/socket')</script>",
        other.url("/style.css"),
        other.url("/fetched"),
    );
    let (server, browser) = (serve(&body).await, Browser::start().await);
    let page = browser.open(&server.url("/")).await;
    other.received(2).await;
    let mut outside = page.requests_outside().await;
    outside.sort();
    assert_eq!(outside, [other.url("/fetched"), other.url("/style.css"), "ws://outside.example/socket".into()]);
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "image-alt (critical)")]
async fn a_page_that_excludes_readers_is_not_clean() {
    let server = serve("<img src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA='>").await;
    let browser = Browser::start().await;
    browser.open(&server.url("/")).await.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accessibility_is_checked_under_a_strict_policy() {
    let (server, browser) = (Receiver::start().await, Browser::start().await);
    let strict =
        Reply::ok().header("content-type", "text/html").header("content-security-policy", "default-src 'none'");
    server.always(strict.body("<!doctype html><html><title>A page</title><main><input></main></html>"));
    let page = browser.open(&server.url("/")).await;
    let found = page.accessibility_violations().await;
    assert!(found.iter().any(|text| text.starts_with("html-has-lang (serious)")), "{found:?}");
    assert!(found.iter().any(|text| text.starts_with("label (critical)") && text.contains("input")), "{found:?}");
    assert_eq!(page.accessibility_violations().await, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_clicked_typed_into_and_read() {
    let body = "<form action='/next'><label>Name <input name=name value=old></label> <button>Send</button></form>
        <ul><li>one</li><li>two</li></ul>
        <p><a href='#more'>More</a></p>
        <script>document.querySelector('a').onclick = () => setTimeout(() => {
            document.querySelector('ul').innerHTML += '<li class=late>three</li>';
        }, 100)</script>";
    let (server, browser) = (serve(body).await, Browser::start().await);
    let page = browser.open(&server.url("/")).await;
    assert_eq!(page.texts_of("li").await, ["one", "two"]);
    page.click("a").await;
    assert_eq!(page.text_of("li.late").await, "three");
    assert_eq!(page.attribute_of("form", "action").await.as_deref(), Some("/next"));
    assert_eq!(page.attribute_of("form", "method").await, None);
    page.type_into("input", "<b>&new").await;
    page.click("button").await;
    page.wait_until("location.pathname === '/next'").await;
    assert_eq!(page.url().await, server.url("/next?name=%3Cb%3E%26new"));
    page.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_driven_by_the_keyboard_alone() {
    let body = "<a href='/first'>First</a> <button aria-label='Close'></button> <label>Find <input name=find></label>
        <script>addEventListener('keydown', event => {
            if (event.key === '/' && event.target.tagName !== 'INPUT') document.querySelector('input').focus();
        })</script>";
    let (server, browser) = (serve(body).await, Browser::start().await);
    let page = browser.open(&server.url("/")).await;
    page.tab_to("input").await;
    page.press("Shift+Tab").await;
    assert_eq!(page.focused().await, "Close");
    page.press("/").await;
    page.press("x").await;
    assert_eq!(page.focused().await, "find");
    assert_eq!(page.value_of("document.activeElement.value").await, "/x");
    page.press("Shift+Tab").await;
    page.press("Shift+Tab").await;
    assert_eq!(page.focused().await, "First");
    page.press("Enter").await;
    page.wait_until("location.pathname === '/first'").await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "among [\"First\"")]
async fn a_control_that_the_keyboard_does_not_reach_is_found() {
    let (server, browser) = (serve("<a href='/'>First</a> <div id=far>Second</div>").await, Browser::start().await);
    browser.open(&server.url("/")).await.tab_to("#far").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_sees_the_width_of_a_phone_and_the_colours_that_are_preferred() {
    let body = "<div style='min-width: 700px'>Wide</div>
        <style>body { background: white; color: black }
        @media (prefers-color-scheme: dark) { body { background: black; color: white } }</style>";
    let (server, browser) = (serve(body).await, Browser::start().await);
    let page = browser.open(&server.url("/")).await;
    assert!(!page.is_too_wide().await);
    page.resize(390, 844).await;
    assert!(page.is_too_wide().await);
    let colour = "getComputedStyle(document.body).backgroundColor";
    page.prefer_dark(true).await;
    assert_eq!(page.value_of(colour).await, "rgb(0, 0, 0)");
    page.prefer_dark(false).await;
    assert_eq!(page.value_of(colour).await, "rgb(255, 255, 255)");
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_are_used_side_by_side_and_share_cookies() {
    let (server, browser) = (serve("<p>Here</p>").await, Browser::start().await);
    let left = browser.open(&server.url("/left")).await;
    let right = browser.open_window(&server.url("/right")).await;
    left.set_cookie("session", "of both").await;
    right.open(&server.url("/right/again")).await;
    assert_eq!(left.value_of("location.pathname").await, "/left");
    assert_eq!(right.value_of("location.pathname").await, "/right/again");
    let requests = server.so_far();
    let last = requests.last().expect("requests");
    assert_eq!((last.path.as_str(), last.header("cookie")), ("/right/again", Some("session=of both")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_forgets_a_test_before_the_next_one_gets_it() {
    let server = serve("<p>Here</p>").await;
    let traces =
        "document.cookie + localStorage.length + matchMedia('(prefers-color-scheme: dark)').matches + innerWidth";
    for _ in 0..2 {
        let browser = Browser::start().await;
        let page = browser.open(&server.url("/")).await;
        assert_eq!(page.value_of(traces).await, "0false1280");
        page.value_of("document.cookie = 'mine=1', localStorage.setItem('mine', '1'), console.error('mine')").await;
        page.prefer_dark(true).await;
        page.resize(390, 844).await;
        browser.open_window(&server.url("/")).await.wait_for("p").await;
        assert_eq!(page.value_of(traces).await, "mine=11true390");
    }
    let browser = Browser::start().await;
    let page = browser.open(&server.url("/")).await;
    page.assert_clean().await;
}
