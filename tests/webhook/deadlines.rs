//! One deadline covers the whole exchange.

use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::net::TcpListener;
use waybill::domain::attempt::ErrorKind;
use waybill::webhook::{Client, Exchange, Lookup};

use super::{SOON, client, failed, post_soon, settings};
use crate::support::PATIENCE;
use crate::support::receiver::{Receiver, Reply};

/// Asserts a timeout that took as long as configured.
#[track_caller]
fn assert_timed_out(exchange: Exchange) -> String {
    assert!(exchange.duration >= SOON && exchange.duration < PATIENCE, "{exchange:?}");
    failed(exchange, ErrorKind::Timeout)
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_a_timeout() {
    let receiver = Receiver::start().await;
    receiver.always(Reply::never());
    assert_eq!(assert_timed_out(client().send(post_soon(receiver.url("/"))).await), "no answer came within 1s");
    receiver.until_in_flight(0).await;
}

#[tokio::test]
async fn a_success_whose_body_does_not_end_in_time_is_a_timeout() {
    let receiver = Receiver::start().await;
    receiver.always(Reply::ok().body("almost").body_never_ends());
    assert_eq!(assert_timed_out(client().send(post_soon(receiver.url("/"))).await), "the answer did not end within 1s");
    receiver.until_in_flight(0).await;
}

#[tokio::test]
async fn a_name_look_up_that_hangs_is_a_timeout() {
    let lookup: Lookup = Arc::new(|_| pending().boxed());
    let client = Client::with_lookup(&settings(), lookup).unwrap();
    assert_timed_out(client.send(post_soon("http://hooks.example/")).await);
}

#[tokio::test]
async fn a_tls_handshake_that_hangs_is_a_timeout() {
    // No process accepts, but the system takes the connection and its bytes.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    assert_timed_out(client().send(post_soon(url)).await);
}

#[tokio::test]
async fn the_longest_possible_timeout_does_not_overflow() {
    let receiver = Receiver::start().await;
    let mut request = post_soon(receiver.url("/"));
    request.timeout = std::time::Duration::MAX;
    assert!(client().send(request).await.result.is_ok());
}
