//! A receiver must prove its identity.

use std::io::Write;
use std::path::Path;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use waybill::domain::attempt::ErrorKind;
use waybill::webhook::{Client, WebhookSettings};

use super::{answered, client, client_that_looks_up, failed, post, settings};
use crate::support::receiver::{Receiver, Reply};

fn trusting(file: &Path) -> WebhookSettings {
    WebhookSettings { ca_file: Some(file.to_owned()), ..settings() }
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused() {
    let receiver = Receiver::start_tls().await;
    let detail = failed(client().send(post(receiver.url("/"))).await, ErrorKind::Tls);
    assert!(detail.contains("UnknownIssuer"), "{detail}");
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn a_certificate_in_the_ca_file_is_accepted() {
    let receiver = Receiver::start_tls().await;
    let client = Client::new(&trusting(receiver.certificate())).unwrap();
    for _ in 0..2 {
        assert_eq!(answered(client.send(post(receiver.url("/"))).await).status, 200);
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let receiver = Receiver::start_tls_for(&["other.example"]).await;
    let client = client_that_looks_up(&trusting(receiver.certificate()), |_| Ok(vec!["127.0.0.1".parse().unwrap()]));
    let at = |name| format!("https://{name}:{}/", receiver.address().port());
    failed(client.send(post(at("hooks.example"))).await, ErrorKind::Tls);
    assert_eq!(receiver.count(), 0);
    answered(client.send(post(at("other.example"))).await);
}

#[tokio::test]
async fn a_receiver_that_does_not_speak_tls_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    });
    failed(client().send(post(url)).await, ErrorKind::Tls);
    plain.await.unwrap();
    let tls = Receiver::start_tls().await;
    // The other way round, the receiver answers with a TLS alert.
    failed(client().send(post(format!("http://{}/", tls.address()))).await, ErrorKind::InvalidResponse);
}

#[tokio::test]
async fn a_handshake_that_breaks_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let hanging_up = tokio::spawn(async move {
        for reset in [true, false] {
            let (stream, _) = listener.accept().await.unwrap();
            if reset {
                stream.set_zero_linger().unwrap();
            }
        }
    });
    for _ in 0..2 {
        failed(client().send(post(&url)).await, ErrorKind::Tls);
    }
    hanging_up.await.unwrap();
}

#[tokio::test]
async fn failures_behind_tls_are_told_apart() {
    let receiver = Receiver::start_tls().await;
    let client = Client::new(&trusting(receiver.certificate())).unwrap();
    for (reply, kind) in [
        (Reply::reset(), ErrorKind::Connection),
        (Reply::close(), ErrorKind::Connection),
        (Reply::ok().reset_after_headers(), ErrorKind::Connection),
        (Reply::garbage(), ErrorKind::InvalidResponse),
    ] {
        receiver.next(reply);
        failed(client.send(post(receiver.url("/"))).await, kind);
    }
}

#[test]
fn a_file_without_certificates_is_refused_at_once() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for content in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        file.write_all(content.as_bytes()).unwrap();
        let error = Client::new(&trusting(file.path())).expect_err("a useless file");
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
    assert!(Client::new(&trusting(Path::new("/nowhere/at/all"))).is_err());
}
