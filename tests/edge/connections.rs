//! Connections: pipelined requests, and bytes that are not HTTP.

use std::net::{IpAddr, UdpSocket};

use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt;

use super::RawConnection;
use crate::support::process::{Process, send, waybill};
use crate::support::work::W1;
use crate::support::{App, database, until};

/// Builds a request for a path, with further header lines.
fn request(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
}

/// Builds a request that publishes an event.
fn publish(more: &str) -> String {
    let body = r#"{"title": "a job", "tags": "a"}"#;
    let length = body.len();
    let head = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n{more}");
    request("POST", "/events", &head) + body
}

#[tokio::test(flavor = "multi_thread")]
async fn of_pipelined_responses_only_the_last_announces_the_close() {
    let app = App::start().await;
    let close = "Connection: close\r\n";
    for last in [request("GET", "/tags", close), publish(close)] {
        let mut raw = RawConnection::to(&app).await;
        raw.send(request("GET", "/tags", "") + &publish("") + &request("GET", "/health", "") + &last).await;
        for status in [200, 201, 200] {
            let response = raw.response_to("GET").await;
            assert_eq!((response.status, response.header("connection")), (status, None), "{response:?}");
        }
        let response = raw.response_to("GET").await;
        assert_eq!(response.header("connection"), Some("close"), "{response:?}");
        raw.expect_end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pipelined_request_is_answered_by_its_own_method_and_version() {
    let app = App::start().await;
    let mut raw = RawConnection::to(&app).await;
    let methods = ["GET", "HEAD", "GET", "HEAD", "HEAD", "GET"];
    raw.send(methods.map(|method| request(method, "/tags", "")).concat()).await;
    for method in methods {
        let response = raw.response_to(method).await;
        assert_eq!((response.status, response.header("content-length")), (200, Some("23")), "{method} {response:?}");
    }
    raw.send(request("GET", "/tags", "") + "GET /tags HTTP/1.0\r\n\r\n").await;
    assert!(raw.response_to("GET").await.head.starts_with("HTTP/1.1 200"));
    assert!(raw.response_to("GET").await.head.starts_with("HTTP/1.0 200"));
    raw.expect_end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_behind_a_body_in_chunks_are_answered_by_their_own_method_and_version() {
    let app = App::start().await;
    let mut raw = RawConnection::to(&app).await;
    let body = r#"{"title": "a job", "tags": "a"}"#;
    let head = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let chunked = format!("{}{:x}\r\n{body}\r\n0\r\n\r\n", request("POST", "/events", head), body.len());
    let close = "Connection: close\r\n";
    raw.send(chunked.clone() + &request("GET", "/tags", "") + &request("HEAD", "/tags", "")).await;
    for (method, status) in [("POST", 201), ("GET", 200), ("HEAD", 200)] {
        assert_eq!(raw.response_to(method).await.status, status);
    }
    raw.send(chunked + &request("GET", "/tags", "") + &request("GET", "/health", close)).await;
    for connection in [None, None, Some("close")] {
        assert_eq!(raw.response_to("GET").await.header("connection"), connection);
    }
    raw.expect_end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_may_be_split_anywhere() {
    let app = App::start().await;
    let bytes = request("GET", "/health", "") + &publish("") + &request("GET", "/tags", "Connection: close\r\n");
    for cut in (1..bytes.len()).step_by(7) {
        let mut raw = RawConnection::to(&app).await;
        raw.stream.set_nodelay(true).expect("a socket");
        raw.send(&bytes[..cut]).await;
        // The second part is usually a packet of its own.
        tokio::task::yield_now().await;
        raw.send(&bytes[cut..]).await;
        for (status, connection) in [(200, None), (201, None), (200, Some("close"))] {
            let response = raw.response_to("GET").await;
            assert_eq!((response.status, response.header("connection")), (status, connection), "cut at {cut}");
        }
        raw.expect_end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_any_kind_may_be_followed_by_another_request() {
    let app = App::start().await;
    let json = "Content-Type: application/json\r\n";
    let chunked = request("POST", "/events", &format!("{json}Transfer-Encoding: chunked\r\n"))
        + "11\r\n{\"title\":\"a job\",\r\nb\r\n\"tags\":\"a\"}\r\n0\r\n\r\n";
    let expecting = publish("Expect: 100-continue\r\n");
    let large = {
        let body = format!(r#"{{"title": "a job", "tags": "a", "payload": "{}"}}"#, "x".repeat(900_000));
        request("POST", "/events", &format!("{json}Content-Length: {}\r\n", body.len())) + &body
    };
    for first in [&chunked, &large, &publish("")] {
        let mut raw = RawConnection::to(&app).await;
        raw.send(first.clone() + &request("GET", "/health", "")).await;
        assert_eq!(raw.response_to("POST").await.status, 201);
        assert_eq!(raw.response_to("GET").await.status, 200);
        raw.send(request("GET", "/tags", "")).await;
        assert_eq!(raw.response_to("GET").await.status, 200);
    }
    let mut raw = RawConnection::to(&app).await;
    raw.send(expecting + &request("GET", "/health", "")).await;
    for status in [100, 201, 200] {
        assert_eq!(raw.response_to("GET").await.status, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipelined_request_does_not_delay_the_claim_before_it() {
    let app = App::start().await;
    let mut raw = RawConnection::to(&app).await;
    let claim = request("GET", &format!("/events/subscribe?tags=a&worker_id={W1}&wait_seconds=60"), "");
    raw.send(claim + &request("GET", "/health", "")).await;
    until("it waits", async || app.engine().hub().len() == 1).await;
    let id = app.publish_tagged("a").await;
    assert!(raw.response_to("GET").await.body.contains(&format!("\"id\":{id}")));
    assert_eq!(raw.response_to("GET").await.status, 200);
}

/// The hang-up is noticed although unread bytes are buffered.
#[tokio::test(flavor = "multi_thread")]
async fn the_hang_up_of_a_worker_with_a_pipelined_request_is_noticed() {
    let app = App::start().await;
    let mut raw = RawConnection::to(&app).await;
    let claim = request("GET", &format!("/events/subscribe?tags=a&worker_id={W1}&wait_seconds=60"), "");
    raw.send(claim + &request("GET", "/health", "")).await;
    until("it waits", async || app.engine().hub().len() == 1).await;
    drop(raw);
    until("the server notices", async || app.engine().hub().is_empty()).await;
    let id = app.publish_tagged("a").await;
    // The first scan of the worker that hung up may still be under way and claim the event, which is
    // then released at once.
    until("another worker gets the event", async || app.claim("a", "w:2").await.is_some()).await;
    assert_eq!(app.status(id).await, "PROCESSING");
}

/// Returns the log lines about a peer.
fn lines_about(stderr: &str, peer: &str) -> Vec<String> {
    stderr.lines().filter(|line| line.contains(peer)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_http_are_logged_with_their_sender_and_not_as_an_error() {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
    command.env("DATABASE_URL", database::empty().await);
    let mut server = Process::start(command);
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03hello from a client that speaks TLS";
    let oversized = format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}\r\n\r\n", "x".repeat(200_000));
    for (garbage, status) in [(&hello[..], 400), (b"HELLO\r\n\r\n", 400), (oversized.as_bytes(), 431)] {
        let mut raw = RawConnection::to(&server.app).await;
        let peer = raw.stream.local_addr().expect("an address").to_string();
        // The server may have closed before it has read all of it.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut raw.stream, garbage).await;
        assert_eq!(raw.response_to("GET").await.status, status);
        until("it is logged", async || !lines_about(&server.stderr(), &peer).is_empty()).await;
        let lines = lines_about(&server.stderr(), &peer);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("INFO") && lines[0].contains("no HTTP request"), "{lines:?}");
    }
    server.app.get("/health").await.expect(200);
    send(server.pid(), Signal::SIGTERM);
    server.exit().await;
    assert!(!server.stderr().contains("ERROR"), "{}", server.stderr());
}

/// Returns an address of this machine that is not loopback. Nothing is sent to find it.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("192.0.2.1:9").expect("this test needs a network interface beside loopback");
    socket.local_addr().expect("an address").ip()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_of_an_address_are_closed_at_once() {
    let mut command = waybill(&["serve", "--bind", "0.0.0.0:0", "--open", "--max-connections-per-address", "3"]);
    command.env("DATABASE_URL", database::empty().await);
    let server = Process::start(command);
    let port = server.app.base.rsplit(':').next().expect("a port").to_owned();
    let at = |ip: IpAddr| App { base: format!("http://{ip}:{port}"), ..server.app.as_stranger() };
    let (here, loopback) = (at(own_address()), at(IpAddr::from([127, 0, 0, 1])));
    let get = request("GET", "/health", "");
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut raw = RawConnection::to(&here).await;
        raw.send(&get).await;
        assert_eq!(raw.response_to("GET").await.status, 200);
        open.push(raw);
    }
    RawConnection::to(&here).await.expect_end().await;
    until("it is logged", async || server.stderr().contains("an address has too many open connections")).await;
    // Others are not affected, and loopback has no limit.
    for _ in 0..5 {
        let mut raw = RawConnection::to(&loopback).await;
        raw.send(&get).await;
        assert_eq!(raw.response_to("GET").await.status, 200);
        open.push(raw);
    }
    // A connection that ends makes room for another one.
    drop(open.remove(0));
    until("there is room", async || {
        let mut raw = RawConnection::to(&here).await;
        let sent = tokio::io::AsyncWriteExt::write_all(&mut raw.stream, get.as_bytes()).await;
        sent.is_ok() && matches!(raw.stream.read(&mut [0; 1]).await, Ok(1))
    })
    .await;
}
