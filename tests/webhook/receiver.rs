//! The scripted receiver itself, on which the other tests depend.

use std::time::Duration;

use crate::support::http_client;
use crate::support::receiver::{Gate, Receiver, Reply};

#[tokio::test]
async fn requests_are_recorded() {
    let receiver = Receiver::start().await;
    let url = receiver.url("/hook?a=1");
    http_client().put(url).header("X-Trace", "t 1").body(r#"{"n":1}"#).send().await.unwrap();
    let requests = receiver.received(1).await;
    assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("PUT", "/hook?a=1"));
    assert_eq!(requests[0].header("x-trace"), Some("t 1"));
    assert_eq!(requests[0].json()["n"], 1);
    assert_eq!(requests[0].text(), r#"{"n":1}"#);
    assert_eq!(requests[0].connection, 1);
    assert!(requests[0].at.elapsed() < Duration::from_mins(1));
}

#[tokio::test]
async fn queued_replies_are_used_before_the_rule() {
    let receiver = Receiver::start().await;
    receiver.next(Reply::status(500));
    receiver.next(Reply::too_many_requests("7"));
    receiver.answer_with(|request| if request.path == "/gone" { Reply::gone() } else { Reply::status(204) });
    let client = http_client();
    let mut statuses = Vec::new();
    for path in ["/gone", "/gone", "/gone", "/"] {
        statuses.push(client.get(receiver.url(path)).send().await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [500, 429, 410, 204]);
}

#[tokio::test]
async fn a_gate_holds_a_response_until_it_opens() {
    let receiver = Receiver::start().await;
    let (first, second) = (Gate::closed(), Gate::closed());
    receiver.next(Reply::ok().held_by(&first));
    receiver.next(Reply::ok().body("almos").body_held_by(&second));
    let sends = [0, 1].map(|_| tokio::spawn(http_client().get(receiver.url("/")).send()));
    receiver.until_in_flight(2).await;
    assert_eq!((receiver.count(), receiver.in_flight()), (2, 2));
    first.open();
    receiver.until_in_flight(1).await;
    second.open();
    receiver.until_in_flight(0).await;
    let mut texts = Vec::new();
    for send in sends {
        texts.push(send.await.unwrap().unwrap().text().await.unwrap());
    }
    texts.sort();
    assert_eq!(texts, ["", "almos."]);
    assert_eq!(receiver.most_in_flight(), 2);
}

#[tokio::test]
async fn a_sender_that_hangs_up_ends_its_request() {
    let receiver = Receiver::start().await;
    receiver.always(Reply::never());
    let send = tokio::spawn(http_client().get(receiver.url("/")).send());
    receiver.until_in_flight(1).await;
    send.abort();
    receiver.until_in_flight(0).await;
}

#[tokio::test]
async fn broken_replies_are_failures_for_the_sender() {
    let receiver = Receiver::start().await;
    let client = http_client();
    for reply in [Reply::reset(), Reply::close(), Reply::garbage()] {
        receiver.next(reply);
        client.get(receiver.url("/")).send().await.expect_err("no answer");
    }
    for reply in [Reply::ok().reset_after_headers(), Reply::ok().close_after_headers()] {
        receiver.next(reply);
        client.get(receiver.url("/")).send().await.unwrap().bytes().await.expect_err("no body");
    }
    assert_eq!(receiver.connections(), 5);
}

#[tokio::test]
async fn tls_works_with_clients_that_trust_the_certificate() {
    let receiver = Receiver::start_tls().await;
    http_client().get(receiver.url("/")).send().await.expect_err("its certificate is not trusted");
    let pem = std::fs::read(receiver.certificate()).unwrap();
    let trusting = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&pem).unwrap()])
        .build()
        .unwrap();
    assert_eq!(trusting.get(receiver.url("/")).send().await.unwrap().status(), 200);
    assert_eq!(receiver.count(), 1);
}
