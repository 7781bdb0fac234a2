//! What is sent is what was requested, and nothing that breaks the framing of HTTP.

use bytes::Bytes;
use waybill::domain::attempt::ErrorKind;
use waybill::webhook::WebhookRequest;

use super::{answered, client, failed, post};
use crate::support::receiver::Receiver;

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test]
async fn method_path_headers_and_body_arrive() {
    let receiver = Receiver::start().await;
    let body = Bytes::from((0..=255).cycle().take(300_000).collect::<Vec<u8>>());
    let request = WebhookRequest {
        method: "PUT".into(),
        headers: vec![header("Webhook-Id", "evt_1"), header("x-many", "1"), header("x-many", "2")],
        body: body.clone(),
        ..post(receiver.url("/a%20b/c?d=e&f"))
    };
    answered(client().send(request).await);
    let sent = &receiver.received(1).await[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("PUT", "/a%20b/c?d=e&f"));
    assert_eq!(sent.header("webhook-id"), Some("evt_1"));
    assert_eq!(sent.headers.iter().filter(|(name, _)| name == "x-many").count(), 2);
    assert_eq!(sent.header("host"), Some(receiver.address().to_string().as_str()));
    assert!(sent.header("user-agent").is_some_and(|agent| agent.starts_with("Waybill/")));
    assert_eq!(sent.header("accept-encoding"), None);
    assert!(sent.body == body, "the body was changed");
}

#[tokio::test]
async fn a_request_may_set_its_user_agent() {
    let receiver = Receiver::start().await;
    answered(
        client().send(WebhookRequest { headers: vec![header("user-agent", "me")], ..post(receiver.url("/")) }).await,
    );
    let agents: Vec<_> =
        receiver.so_far()[0].headers.iter().filter(|(name, _)| name == "user-agent").cloned().collect();
    assert_eq!(agents, [header("user-agent", "me")]);
}

#[tokio::test]
async fn an_invalid_method_or_header_is_not_sent() {
    let receiver = Receiver::start().await;
    let request = post(receiver.url("/"));
    let client = client();
    for bad in [
        header("x-a", "1\r\nx-b: 2"),
        header("x a", "1"),
        header("", "1"),
        header("Content-Length", "1"),
        header("transfer-encoding", "chunked"),
        header("Connection", "close"),
    ] {
        let exchange = client.send(WebhookRequest { headers: vec![bad.clone()], ..request.clone() }).await;
        failed(exchange, ErrorKind::BodyNotRenderable);
    }
    failed(client.send(WebhookRequest { method: "PO ST".into(), ..request }).await, ErrorKind::BodyNotRenderable);
    assert_eq!(receiver.connections(), 0);
}
