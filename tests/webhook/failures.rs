//! The kinds of failures are told apart.

use std::io;

use tokio::net::TcpListener;
use waybill::domain::attempt::ErrorKind;

use super::{client, client_that_looks_up, failed, post, settings};
use crate::support::receiver::{Receiver, Reply};

#[tokio::test]
async fn a_connection_that_breaks_is_reported() {
    let receiver = Receiver::start().await;
    let client = client();
    for reply in [
        Reply::reset(),
        Reply::close(),
        Reply::ok().reset_after_headers(),
        Reply::ok().close_after_headers(),
        Reply::raw("HTTP/1.1 200 O"),
    ] {
        receiver.next(reply.clone());
        let detail = failed(client.send(post(receiver.url("/"))).await, ErrorKind::Connection);
        assert!(detail.starts_with("the connection broke: "), "{reply:?}: {detail}");
    }
    // Nothing was sent twice.
    assert_eq!(receiver.count(), 5);
}

#[tokio::test]
async fn a_response_that_is_not_http_is_reported() {
    let receiver = Receiver::start().await;
    let client = client();
    for reply in [
        Reply::garbage(),
        Reply::raw("220 mail.example ESMTP\r\n"),
        Reply::raw("HTTP/1.1 two hundred\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"),
    ] {
        receiver.next(reply.clone());
        let detail = failed(client.send(post(receiver.url("/"))).await, ErrorKind::InvalidResponse);
        assert!(detail.starts_with("the answer is not HTTP: "), "{reply:?}: {detail}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_reported() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let detail = failed(client().send(post(format!("http://{unused}/"))).await, ErrorKind::Connect);
    assert!(detail.contains("Connection refused"), "{detail}");
}

#[tokio::test]
async fn an_unknown_host_name_is_reported() {
    let unknown = client_that_looks_up(&settings(), |_| Err(io::Error::other("no such name")));
    let detail = failed(unknown.send(post("http://hooks.example/?secret=1")).await, ErrorKind::Dns);
    assert_eq!(detail, "the name of the host could not be resolved: no such name");
    let empty = client_that_looks_up(&settings(), |_| Ok(Vec::new()));
    failed(empty.send(post("http://hooks.example/")).await, ErrorKind::Dns);
    // By the system itself; `.invalid` has no names in it (RFC 6761).
    failed(client().send(post("http://hooks.invalid/")).await, ErrorKind::Dns);
}

#[tokio::test]
async fn the_detail_of_a_failure_holds_nothing_of_the_url_or_the_response() {
    let receiver = Receiver::start().await;
    let client = client();
    for reply in [Reply::raw("SECRET\r\n\r\n"), Reply::ok().header("x", "SECRET").reset_after_headers()] {
        receiver.next(reply);
        let error = client.send(post(receiver.url("/?key=SECRET"))).await.result.unwrap_err();
        assert!(!error.detail.contains("SECRET"), "{}", error.detail);
    }
}
