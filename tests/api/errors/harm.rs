//! A bad request does not affect other requests, and no error reveals internals to a client.

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{JSON_ROUTES, request};
use crate::support::{App, database};

const GOOD: &str = JSON_ROUTES[0].1;

#[tokio::test(flavor = "multi_thread")]
async fn a_good_request_right_after_a_bad_one_works() {
    let app = App::start().await;
    for bad in ["{", "5", r#"{"title":""}"#, "\u{0}", &"[".repeat(100_000), &" ".repeat(2_000_000)] {
        assert!(matches!(app.post_text("/events", bad).await.status, 400 | 413), "{bad:.20}");
        app.post_text("/events", GOOD).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn good_requests_among_bad_ones_all_work() {
    let app = App::start().await;
    let statuses = join_all((0..60).map(|n| {
        let body = if n % 2 == 0 { GOOD } else { r#"{"title":"a\u0000b","tags":5}"# };
        let app = &app;
        async move { app.post_text("/events", body).await.status }
    }));
    let wanted: Vec<u16> = (0..60).map(|n| if n % 2 == 0 { 201 } else { 400 }).collect();
    assert_eq!(statuses.await, wanted);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_in_the_middle_of_a_request_do_not_affect_others() {
    let app = App::start().await;
    let address = app.server.as_ref().expect("a running server").address();
    let head =
        "POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n";
    for part in [&head[..20], head, &format!("{head}{{\"title\":\"a job\""), "\u{1}\u{2} nonsense\r\n\r\n"] {
        let mut socket = TcpStream::connect(address).await.expect("a connection");
        socket.write_all(part.as_bytes()).await.expect("sent");
    }
    app.post_text("/events", GOOD).await.expect(201);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_is_limited_too() {
    let app = App::start().await;
    let address = app.server.as_ref().expect("a running server").address();
    let mut socket = TcpStream::connect(address).await.expect("a connection");
    let head = "POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(0x10_0000));
    socket.write_all(format!("{head}{chunk}{chunk}0\r\n\r\n").as_bytes()).await.expect("sent");
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.expect("a response");
    assert_eq!(&status, b"HTTP/1.1 413");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_internal_error_reveals_no_internals() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    app.claim("email", "w:1").await.expect("an event");
    database::execute(&app.url, "ALTER TABLE waybill.deliveries RENAME TO hidden").await;
    let calls = [
        ("POST", "/events".to_owned(), Some(GOOD)),
        ("POST", "/events/batch".to_owned(), Some(JSON_ROUTES[1].1)),
        ("POST", "/events/claim".to_owned(), Some(JSON_ROUTES[2].1)),
        ("POST", format!("/events/{id}/complete"), Some(r#"{"worker_id":"w:1"}"#)),
        ("POST", format!("/events/{id}/reset"), None),
        ("GET", format!("/events/{id}"), None),
        ("GET", "/events".to_owned(), None),
        ("GET", "/workers".to_owned(), None),
    ];
    let expected = json!({
        "type": "/problems/internal_error", "title": "Internal error", "status": 500,
        "detail": "A fault of the server; the cause is in its log.", "code": "internal_error", "error": "Internal error",
        "retryable": false, "effect": "unknown",
    });
    for (method, path, body) in calls {
        let reply = request(&app, method, &path, body).await;
        assert_eq!(reply.problem(500, "internal_error"), expected, "{method} {path}");
    }
    database::execute(&app.url, "ALTER TABLE waybill.hidden RENAME TO deliveries").await;
    app.complete(id, "w:1").await.expect(200);
}
