//! Connections are reused where possible, and only there.

use super::{answered, client, failed, post};
use crate::support::receiver::{Receiver, Reply};
use waybill::domain::attempt::ErrorKind;
use waybill::webhook::RESPONSE_READ_BYTES;

#[tokio::test]
async fn a_connection_is_reused() {
    let receiver = Receiver::start().await;
    receiver.next(Reply::ok().body(vec![b'x'; RESPONSE_READ_BYTES - 1]));
    let client = client();
    for _ in 0..3 {
        answered(client.clone().send(post(receiver.url("/"))).await);
    }
    let connections: Vec<usize> = receiver.so_far().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [1, 1, 1]);
}

#[tokio::test]
async fn a_connection_whose_body_was_cut_off_is_not_reused() {
    let receiver = Receiver::start().await;
    receiver.next(Reply::ok().body(vec![b'x'; 10 * RESPONSE_READ_BYTES]));
    let client = client();
    for _ in 0..2 {
        answered(client.send(post(receiver.url("/"))).await);
    }
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn after_a_failure_the_next_request_gets_a_new_connection() {
    let receiver = Receiver::start().await;
    receiver.next(Reply::reset());
    let client = client();
    failed(client.send(post(receiver.url("/"))).await, ErrorKind::Connection);
    answered(client.send(post(receiver.url("/"))).await);
    assert_eq!(receiver.connections(), 2);
}
