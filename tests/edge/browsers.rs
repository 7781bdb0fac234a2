//! Requests that a browser sends on behalf of another site's page.

use reqwest::header::HeaderMap;
use serde_json::json;

use super::RawConnection;
use crate::support::{App, Options, Reply, ledger};

const EVENT: &str = r#"{"title": "a job", "tags": "a"}"#;

/// Publishes an event with these headers.
async fn publish_with(app: &App, headers: &[(&'static str, &str)]) -> Reply {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect();
    let request = app.client.post(format!("{}/events", app.base)).header("content-type", "application/json");
    Reply::of(request.headers(headers).body(EVENT).send().await.expect("a response")).await
}

/// Sends a request for a path under this `Host`.
async fn get_under(app: &App, host: &str, path: &str) -> Reply {
    let request = app.client.get(format!("{}{path}", app.base)).header("host", host);
    Reply::of(request.send().await.expect("a response")).await
}

async fn app_with(flag: &str) -> App {
    App::start_with(Options { flags: vec![flag.into()], ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_cannot_write() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let port = app.base.rsplit(':').next().expect("a port");
    let other_scheme_and_port = format!("http://127.0.0.1:{}", port.parse::<u16>().expect("a port") ^ 1);
    for origin in ["https://evil.example", "null", "", "http://127.0.0.1", "file://", &other_scheme_and_port] {
        publish_with(&app, &[("origin", origin)]).await.problem(403, "origin_not_allowed");
        let cancel = app.client.post(format!("{}/events/{id}/cancel", app.base)).header("origin", origin);
        Reply::of(cancel.send().await.expect("a response")).await.problem(403, "origin_not_allowed");
    }
    assert_eq!(app.status(id).await, "PENDING");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_marked_as_cross_site_by_the_browser_cannot_write() {
    let app = App::start().await;
    for site in ["cross-site", "same-site", "unheard-of"] {
        publish_with(&app, &[("sec-fetch-site", site)]).await.problem(403, "origin_not_allowed");
        let both = [("sec-fetch-site", site), ("origin", app.base.as_str())];
        publish_with(&app, &both).await.problem(403, "origin_not_allowed");
    }
}

/// An image on a page is a `GET` without an `Origin`, and one of the `GET` routes claims work.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_cannot_claim() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        for path in ["/events/subscribe", "/events/%73ubscribe", "/%65vents/subscrib%65"] {
            let request = app.client.get(format!("{}{path}?tags=a&worker_id=evil:1", app.base)).header(name, value);
            Reply::of(request.send().await.expect("a response")).await.problem(403, "origin_not_allowed");
        }
    }
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_a_browser_follows_cannot_claim() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    for site in ["none", "same-origin"] {
        let request = app.client.get(format!("{}/events/subscribe?tags=a&worker_id=evil:1", app.base));
        let request = request.header("sec-fetch-site", site).header("sec-fetch-mode", "navigate");
        Reply::of(request.send().await.expect("a response")).await.problem(403, "origin_not_allowed");
    }
    assert_eq!(app.status(id).await, "PENDING");
    assert!(app.claim("a", "w:1").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_this_server_can_write() {
    let app = App::start().await;
    publish_with(&app, &[("origin", &app.base)]).await.expect(201);
    publish_with(&app, &[("origin", &app.base), ("sec-fetch-site", "same-origin")]).await.expect(201);
    publish_with(&app, &[("sec-fetch-site", "none")]).await.expect(201);
    // Behind a proxy that terminates TLS, the page's scheme is not the server's.
    publish_with(&app, &[("origin", &app.base.replace("http:", "https:"))]).await.expect(201);
    let by_name = [("origin", "http://LOCALHOST:8080"), ("host", "localhost:8080")];
    publish_with(&app, &by_name).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_may_send_reads_whose_responses_it_cannot_see() {
    let app = App::start().await;
    for method in [reqwest::Method::GET, reqwest::Method::HEAD, reqwest::Method::OPTIONS] {
        let request =
            app.client.request(method, format!("{}/events", app.base)).header("origin", "https://evil.example");
        let reply = Reply::of(request.header("sec-fetch-site", "cross-site").send().await.expect("a response")).await;
        assert!(reply.status < 300, "{reply:?}");
        assert!(!reply.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_accepts_ip_addresses_and_localhost_as_host() {
    let app = App::start().await;
    let hosts = [
        "localhost",
        "localhost:8080",
        "LocalHost:1",
        "queue.localhost",
        "localhost.",
        "127.0.0.1",
        "127.8.9.1:80",
        "[::1]",
        "[::1]:8080",
        "10.0.0.7:8080",
        "[2001:db8::7]",
    ];
    for host in hosts {
        get_under(&app, host, "/events").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_name_that_is_not_configured_is_refused_for_every_method() {
    let app = App::start().await;
    let hosts = [
        "evil.example",
        "evil.example:8080",
        "waybill",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::1",
        "[::1]evil.example",
        "127.0.0.1:8080@evil.example",
        "localhost:evil.example",
        "2130706433",
    ];
    for host in hosts {
        get_under(&app, host, "/events").await.problem(421, "host_not_allowed");
        get_under(&app, host, "/nowhere").await.problem(421, "host_not_allowed");
        publish_with(&app, &[("host", host)]).await.problem(421, "host_not_allowed");
        let same = format!("http://{host}");
        publish_with(&app, &[("host", host), ("origin", &same)]).await.problem(421, "host_not_allowed");
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_host_names_are_accepted_with_any_port() {
    let app = app_with("--allowed-hosts=queue.example, waybill").await;
    for host in ["queue.example", "Queue.Example:8443", "queue.example.", "waybill:8080", "localhost"] {
        get_under(&app, host, "/events").await.expect(200);
    }
    for host in ["example", "a.queue.example", "waybill.example"] {
        get_under(&app, host, "/events").await.problem(421, "host_not_allowed");
    }
    let page = [("host", "queue.example"), ("origin", "https://queue.example")];
    publish_with(&app, &page).await.expect(201);
    let other = [("host", "queue.example"), ("origin", "https://waybill")];
    publish_with(&app, &other).await.problem(403, "origin_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asterisk_accepts_every_host() {
    let app = app_with("--allowed-hosts=*").await;
    get_under(&app, "anything.example", "/events").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_of_load_balancers_are_answered_under_any_host() {
    let app = App::start().await;
    for path in ["/health", "/ready"] {
        get_under(&app, "probe.internal", path).await.expect(200);
    }
    get_under(&app, "probe.internal", "/metrics").await.problem(421, "host_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_of_an_absolute_target_is_checked_and_a_missing_host_is_accepted() {
    let app = App::start().await;
    let requests = [
        ("GET http://localhost/events HTTP/1.1\r\nHost: evil.example\r\n", 200),
        ("GET http://evil.example/events HTTP/1.1\r\nHost: localhost\r\n", 421),
        ("GET /events HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 400),
        ("GET /events HTTP/1.1\r\nHost:\r\n", 200),
        ("GET /events HTTP/1.0\r\n", 200),
    ];
    for (request, status) in requests {
        let mut raw = RawConnection::to(&app).await;
        raw.send(format!("{request}Connection: close\r\n\r\n")).await;
        assert_eq!(raw.response_to("GET").await.status, status, "{request}");
    }
}

/// The response arrives although the body never does.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_does_not_wait_for_the_body() {
    let app = App::start().await;
    for (headers, status) in [("Host: localhost\r\nOrigin: https://evil.example", 403), ("Host: evil.example", 421)] {
        let mut raw = RawConnection::to(&app).await;
        raw.send(format!("POST /events HTTP/1.1\r\n{headers}\r\nContent-Length: 1000\r\n\r\n")).await;
        assert_eq!(raw.response_to("POST").await.status, status);
    }
}

#[test]
fn a_configured_host_that_is_not_a_name_is_refused_at_startup() {
    use clap::Parser;
    for nonsense in ["http://queue.example", "queue.example:8080", "a b", "*.example", "queue.example/x"] {
        let flag = format!("--allowed-hosts={nonsense}");
        let error = waybill::config::Cli::try_parse_from(["waybill", "serve", &flag]).expect_err(nonsense).to_string();
        assert!(error.contains(nonsense), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_not_browsers_are_not_affected() {
    let app = App::start().await;
    app.post("/events", &json!({"title": "a job", "tags": "a"})).await.expect(201);
}
