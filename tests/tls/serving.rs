//! Requests and responses over TLS.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Files, Identity, TlsApp, client_that_trusts, connect};
use crate::support::process::{Process, waybill};
use crate::support::{Reply, database, until, within_patience};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_trusts_the_certificate_is_served() {
    let app = TlsApp::start().await;
    assert!(app.base.starts_with("https://"));
    let id = app.publish_tagged("a").await;
    assert_eq!(app.claim("a", "w:1").await.expect("an event")["id"], id);
    let large = app.publish(json!({"title": "t", "tags": "b", "payload": "x".repeat(900_000)})).await;
    assert_eq!(app.claim("b", "w:1").await.expect("an event")["id"], large);
    app.complete(id, "w:1").await.expect(200);
    app.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_trust_the_certificate_sends_nothing() {
    let app = TlsApp::start().await;
    let stranger = client_that_trusts(&[&Identity::new()]);
    assert!(stranger.get(format!("{}/health", app.base)).send().await.is_err());
    app.get("/health").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_tls_is_told_to_use_it() {
    let app = TlsApp::start().await;
    let mut socket = TcpStream::connect(app.address()).await.expect("a connection");
    let body = "x".repeat(100_000);
    let request = format!("POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).await.expect("the server reads");
    let mut response = String::new();
    within_patience(socket.read_to_string(&mut response)).await.expect("a response, and no reset");
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert!(response.ends_with("https:// URL\n"), "{response}");
    let length = response.split("\r\n\r\n").nth(1).expect("a body").len();
    assert!(response.contains(&format!("content-length: {length}\r\n")), "{response}");
}

/// Clients that fail the handshake, or never begin it, are logged for those who look, and disturb nobody.
#[tokio::test(flavor = "multi_thread")]
async fn failed_handshakes_are_logged_at_debug() {
    let identity = Identity::new();
    let files = Files::with(&identity);
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
    command.args(files.flags()).env("DATABASE_URL", database::empty().await).env("WAYBILL_LOG", "debug");
    let mut server = Process::start(command);
    let address = server.app.base.trim_start_matches("https://").to_owned();
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(&address).await.expect("a connection"));
    }
    assert!(connect(&address, &[&Identity::new()], "http/1.1").await.is_err());
    let mut socket = TcpStream::connect(&address).await.expect("a connection");
    socket.write_all(b"\x16\x03\x01\x00\x05hello").await.expect("sent");
    let _ = within_patience(socket.read_to_end(&mut Vec::new())).await;
    until("both are logged", async || server.stderr().matches("a TLS handshake failed").count() >= 2).await;
    server.app.client = client_that_trusts(&[&identity]);
    server.app.get("/health").await.expect(200);
    drop(silent);
    assert!(!server.stderr().contains("ERROR"), "{}", server.stderr());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_demand_tls_only_under_a_name_of_this_server_and_only_over_tls() {
    let app = TlsApp::start_with(&["--allowed-hosts=queue.example"]).await;
    let page = async |host: &str| {
        let request = app.client.get(format!("{}/docs", app.base)).header("host", host);
        Reply::of(request.send().await.expect("a response")).await.expect(200)
    };
    let demand = page("queue.example").await.header("strict-transport-security").map(str::to_owned);
    assert!(demand.is_some_and(|demand| demand.starts_with("max-age=")));
    assert_eq!(page("localhost").await.header("strict-transport-security"), None);

    let plain = crate::support::App::start_with(crate::support::Options {
        flags: vec!["--allowed-hosts=queue.example".into()],
        ..Default::default()
    })
    .await;
    let request = plain.client.get(format!("{}/docs", plain.base)).header("host", "queue.example");
    let page = Reply::of(request.send().await.expect("a response")).await.expect(200);
    assert_eq!(page.header("strict-transport-security"), None);
}
