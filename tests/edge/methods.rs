//! `HEAD` and `OPTIONS`.

use std::collections::BTreeMap;

use reqwest::Method;

use super::RawConnection;
use crate::support::work::W1;
use crate::support::{App, Reply};

async fn send(app: &App, method: Method, path: &str) -> Reply {
    Reply::of(app.client.request(method, format!("{}{path}", app.base)).send().await.expect("a response")).await
}

/// Returns the headers that must be the same for `GET` and `HEAD`.
fn comparable(reply: &Reply) -> BTreeMap<String, String> {
    let headers = reply.headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
    headers.map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn head_returns_what_get_returns_without_the_body() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let paths = waybill::http::routes()
        .into_iter()
        .filter(|endpoint| endpoint.has_head)
        .map(|endpoint| endpoint.path.replace("{id}", &id.to_string()));
    let others =
        ["/events/4711", "/events?limit=0", "/nowhere", "/", "/ui/events", "/login", "/?x=1"].map(str::to_owned);
    for path in paths.chain(others) {
        // Counters may change from one call to the next.
        if path == "/metrics" {
            continue;
        }
        let (get, head) = (send(&app, Method::GET, &path).await, send(&app, Method::HEAD, &path).await);
        assert_eq!((get.status, comparable(&get)), (head.status, comparable(&head)), "{path}");
        assert_eq!(head.text, "", "{path}");
        assert_eq!(head.header("content-length"), Some(get.text.len().to_string().as_str()), "{path}");
    }
    assert_eq!(send(&app, Method::HEAD, "/metrics").await.expect(200).text, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_can_be_used_after_a_head() {
    let app = App::start().await;
    let mut raw = RawConnection::to(&app).await;
    for method in ["HEAD", "GET", "HEAD", "GET"] {
        raw.send(format!("{method} /tags HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        let response = raw.response_to(method).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.body.is_empty(), method == "HEAD");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_claims_nothing() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let reply = send(&app, Method::HEAD, &format!("/events/subscribe?tags=a&worker_id={W1}")).await.expect(405);
    assert_eq!(reply.header("allow"), Some("GET, OPTIONS"));
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_begins_no_stream() {
    let app = App::start().await;
    let reply = send(&app, Method::HEAD, "/logs/stream").await.expect(405);
    assert_eq!(reply.header("allow"), Some("GET, OPTIONS"));
}

#[tokio::test(flavor = "multi_thread")]
async fn options_lists_the_methods_of_a_path() {
    let app = App::start().await;
    let paths = [
        ("/events", "POST, GET, HEAD, OPTIONS"),
        ("/events/1", "GET, HEAD, OPTIONS"),
        ("/events/subscribe", "GET, OPTIONS"),
        ("/events/1/cancel", "POST, OPTIONS"),
        ("/subscriptions/1", "GET, HEAD, PATCH, DELETE, OPTIONS"),
    ];
    for (path, allow) in paths {
        let reply = send(&app, Method::OPTIONS, path).await.expect(204);
        assert_eq!((reply.header("allow"), reply.text.as_str()), (Some(allow), ""), "{path}");
    }
    send(&app, Method::OPTIONS, "/nowhere").await.problem(404, "route_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_server_lists_all_methods() {
    let app = App::start().await;
    let mut raw = RawConnection::to(&app).await;
    raw.send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let response = raw.response_to("OPTIONS").await;
    assert_eq!(
        (response.status, response.header("allow")),
        (204, Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"))
    );
    raw.send("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(raw.response_to("GET").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_is_the_overview_and_takes_no_unknown_parameter() {
    let app = App::start().await;
    let page = app.get("/").await.expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let refused = app.get("/?x=1").await.expect(400);
    assert!(
        refused.text.contains("Invalid request") && refused.header("content-type") == page.header("content-type"),
        "{refused:?}"
    );
    assert_eq!(send(&app, Method::OPTIONS, "/").await.expect(204).header("allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(send(&app, Method::POST, "/").await.expect(405).header("allow"), Some("GET, HEAD, OPTIONS"));
    let app = app.with_admin_key().await;
    for method in [Method::GET, Method::HEAD] {
        let reply = send(&app.as_stranger(), method, "/").await.expect(303);
        assert_eq!(reply.header("location"), Some("/login"));
    }
    app.get("/").await.expect(200);
}
