//! Over TLS, too, a claim is undone exactly if the client cannot have received its response. The tests use
//! real sockets, closed in every way that clients have.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::TlsApp;
use crate::support::{until, within_patience};

const UNDONE: &str = "SELECT count(*) FROM waybill.event_log WHERE reason = 'client_gone'";

/// More than the server sends before its first response, so that the client can tell them apart.
const SMALL: usize = 8_000;

/// More than the kernels buffer between server and client.
const LARGE: usize = 500_000;

/// How a client ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Closes the socket.
    Abrupt,
    /// Announces the end in TLS, and closes the socket at once.
    Announced,
    /// Announces the end in TLS, waits for the server to do the same, and closes the socket.
    Agreed,
}

const ENDINGS: [Ending; 3] = [Ending::Abrupt, Ending::Announced, Ending::Agreed];

impl Ending {
    async fn end(self, mut stream: TlsStream<TcpStream>) {
        if self == Ending::Abrupt {
            return;
        }
        let (socket, session) = stream.get_mut();
        session.send_close_notify();
        let mut announcement = Vec::new();
        session.write_tls(&mut announcement).expect("it is in memory");
        socket.write_all(&announcement).await.expect("the server reads");
        if self == Ending::Agreed {
            within_patience(stream.read_to_end(&mut Vec::new())).await.expect("the server agrees");
        }
    }
}

async fn publish(app: &TlsApp, tag: &str, payload_bytes: usize) -> i64 {
    app.publish(json!({"title": "t", "tags": tag, "payload": "x".repeat(payload_bytes)})).await
}

fn subscribe(tag: &str, version: &str, more: &str) -> String {
    format!("GET /events/subscribe?tags={tag}&worker_id=w:1{more} HTTP/{version}\r\nhost: localhost\r\n")
}

async fn send(app: &TlsApp, request: &str) -> TlsStream<TcpStream> {
    let mut stream = app.connect("http/1.1").await;
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    stream.flush().await.expect("the server reads");
    stream
}

/// Waits until the kernel of the client has at least `bytes` bytes that the client has not read.
async fn until_arrived(stream: &TlsStream<TcpStream>, bytes: usize) {
    let mut buffer = vec![0; bytes];
    until("the response has arrived", async || {
        stream.get_ref().0.peek(&mut buffer).await.expect("a connection") == bytes
    })
    .await;
}

/// Reads as many bytes as the response announces, and not one more.
async fn read_event(stream: &mut TlsStream<TcpStream>) -> Value {
    let mut bytes = Vec::new();
    let head = loop {
        bytes.push(within_patience(stream.read_u8()).await.expect("a head"));
        if bytes.ends_with(b"\r\n\r\n") {
            break String::from_utf8(std::mem::take(&mut bytes)).expect("text").to_ascii_lowercase();
        }
    };
    assert!(head.starts_with("http/1.1 200") || head.starts_with("http/1.0 200"), "{head}");
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("a length");
    bytes.resize(length.parse().expect("a number"), 0);
    within_patience(stream.read_exact(&mut bytes)).await.expect("a body");
    serde_json::from_slice(&bytes).expect("an event")
}

async fn assert_undone(app: &TlsApp, id: i64) {
    until("the claim is undone", async || app.actions(id).await == ["PICKED", "RELEASED"]).await;
}

/// A client that loses its response comes last: when its claim is undone, the server has decided about all
/// the others.
async fn assert_that_no_other_claim_was_undone(app: &TlsApp, tag: &str) {
    let id = publish(app, tag, LARGE).await;
    let before = app.count(UNDONE).await;
    let stream = send(app, &(subscribe(tag, "1.1", "") + "\r\n")).await;
    until_arrived(&stream, SMALL).await;
    drop(stream);
    assert_undone(app, id).await;
    assert_eq!((before, app.count(UNDONE).await), (0, 1), "only the lost claim is undone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_before_reading_loses_its_claim() {
    let app = TlsApp::start().await;
    for (payload_bytes, version) in [(SMALL, "1.1"), (LARGE, "1.1"), (LARGE, "1.0")] {
        // A client that waits for the server to agree reads its response.
        for ending in [Ending::Abrupt, Ending::Announced] {
            let id = publish(&app, "a", payload_bytes).await;
            let stream = send(&app, &(subscribe("a", version, "") + "\r\n")).await;
            until_arrived(&stream, SMALL).await;
            ending.end(stream).await;
            until(&format!("{version} {ending:?} {payload_bytes}"), async || {
                app.actions(id).await == ["PICKED", "RELEASED"]
            })
            .await;
            let event = app.claim("a", "w:9").await.expect("an event");
            assert_eq!((&event["id"], &event["attempt"]), (&json!(id), &json!(1)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_its_response_keeps_its_claim_however_it_closes() {
    let app = TlsApp::start().await;
    for payload_bytes in [10, LARGE] {
        for ending in ENDINGS {
            for (version, more) in [("1.1", ""), ("1.1", "connection: close\r\n"), ("1.0", "")] {
                // The server waits up to a second before it agrees.
                for _ in 0..if ending == Ending::Agreed { 1 } else { 6 } {
                    let id = publish(&app, "a", payload_bytes).await;
                    let mut stream = send(&app, &(subscribe("a", version, "") + more + "\r\n")).await;
                    assert_eq!(read_event(&mut stream).await["id"], id);
                    ending.end(stream).await;
                }
            }
        }
    }
    assert_that_no_other_claim_was_undone(&app, "last").await;
}

/// Clients of HTTP/1.0 read until the server closes, and need to know that nothing was cut off.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_announces_its_close() {
    let app = TlsApp::start().await;
    for (version, more) in [("1.0", ""), ("1.1", "connection: close\r\n")] {
        publish(&app, "a", LARGE).await;
        let mut stream = send(&app, &(subscribe("a", version, "") + more + "\r\n")).await;
        let mut response = Vec::new();
        // An end without an announcement would be an error.
        within_patience(stream.read_to_end(&mut response)).await.expect("an announced end");
        assert!(response.len() > LARGE);
    }
    assert_that_no_other_claim_was_undone(&app, "last").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_after_its_next_request_keeps_the_claim_before_it() {
    let app = TlsApp::start().await;
    let id = publish(&app, "a", SMALL).await;
    let mut stream = send(&app, &(subscribe("a", "1.1", "") + "\r\n")).await;
    assert_eq!(read_event(&mut stream).await["id"], id);
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the server reads");
    until_arrived(&stream, 1).await;
    // The response to the second request is unread, so the kernel resets the connection.
    drop(stream);
    assert_that_no_other_claim_was_undone(&app, "last").await;
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_during_a_long_poll_is_noticed() {
    let app = TlsApp::start().await;
    for ending in ENDINGS {
        let stream = send(&app, &(subscribe("a", "1.1", "&wait_seconds=60") + "\r\n")).await;
        let hub = app.engine().hub();
        until("it waits", async || hub.len() == 1 && hub.asleep() == 1).await;
        ending.end(stream).await;
        until(&format!("the server notices: {ending:?}"), async || hub.is_empty()).await;
    }
    let id = publish(&app, "a", 10).await;
    assert_eq!(app.event(id).await["status"], "PENDING");
    assert_eq!(app.actions(id).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_in_the_middle_of_its_response_loses_its_claim() {
    let app = TlsApp::start().await;
    for more in ["", "connection: close\r\n"] {
        let id = publish(&app, "a", LARGE).await;
        let mut stream = send(&app, &(subscribe("a", "1.1", "") + more + "\r\n")).await;
        stream.read_exact(&mut vec![0; 100_000]).await.expect("a part of the response");
        drop(stream);
        assert_undone(&app, id).await;
        app.claim("a", "w:9").await.expect("an event");
    }
}
