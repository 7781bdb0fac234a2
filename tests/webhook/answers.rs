//! A receiver's response is returned as it was sent.

use waybill::webhook::{EXCERPT_BYTES, RESPONSE_READ_BYTES};

use super::{answered, client, post, post_soon};
use crate::support::receiver::{Receiver, Reply};

#[tokio::test]
async fn a_success_is_returned_with_its_body() {
    let receiver = Receiver::start().await;
    receiver.always(Reply::status(202).body("taken, thank you"));
    let exchange = client().send(post(receiver.url("/"))).await;
    assert!(exchange.duration.as_nanos() > 0);
    let answer = answered(exchange);
    assert_eq!((answer.status, answer.excerpt.as_str()), (202, "taken, thank you"));
    assert_eq!(answer.retry_after, None);
    assert!(answer.is_success());
}

#[tokio::test]
async fn every_status_is_returned() {
    let receiver = Receiver::start().await;
    let client = client();
    for status in [200, 204, 299, 300, 304, 400, 401, 404, 410, 429, 500, 502, 503, 599] {
        receiver.next(Reply::status(status));
        let answer = answered(client.send(post(receiver.url("/"))).await);
        assert_eq!(answer.status, status);
        assert_eq!(answer.is_success(), status < 300);
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_retry_after_is_returned_unchanged() {
    let receiver = Receiver::start().await;
    let client = client();
    for value in ["120", "Fri, 31 Dec 2027 23:59:59 GMT", "soon"] {
        receiver.next(Reply::too_many_requests(value));
        let answer = answered(client.send(post(receiver.url("/"))).await);
        assert_eq!((answer.status, answer.retry_after.as_deref()), (429, Some(value)));
    }
    receiver.next(Reply::too_many_requests(&"9".repeat(1000)));
    assert_eq!(answered(client.send(post(receiver.url("/"))).await).retry_after, None);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (receiver, elsewhere) = (Receiver::start().await, Receiver::start().await);
    let client = client();
    for status in [301, 302, 303, 307, 308] {
        receiver.next(Reply::status(status).header("location", &elsewhere.url("/")));
        assert_eq!(answered(client.send(post(receiver.url("/"))).await).status, status);
    }
    receiver.next(Reply::redirect_to("/other"));
    assert_eq!(answered(client.send(post(receiver.url("/"))).await).status, 302);
    assert_eq!((receiver.count(), elsewhere.connections()), (6, 0));
}

#[tokio::test]
async fn only_the_beginning_of_a_long_body_is_kept() {
    let receiver = Receiver::start().await;
    receiver.always(Reply::ok().body("0123456789".repeat(RESPONSE_READ_BYTES / 10)));
    let answer = answered(client().send(post(receiver.url("/"))).await);
    assert_eq!(answer.excerpt, "0123456789".repeat(EXCERPT_BYTES)[..EXCERPT_BYTES]);
}

#[tokio::test]
async fn an_endless_body_is_cut_off_and_the_status_counts() {
    let receiver = Receiver::start().await;
    let client = client();
    for status in [200, 500] {
        receiver.next(Reply::status(status).endless());
        let answer = answered(client.send(post(receiver.url("/"))).await);
        assert_eq!((answer.status, answer.excerpt.len()), (status, EXCERPT_BYTES));
        assert!(answer.excerpt.starts_with("more and more and "));
        // The client has stopped reading.
        receiver.until_in_flight(0).await;
    }
}

#[tokio::test]
async fn a_body_that_is_not_utf_8_is_converted_to_text() {
    let receiver = Receiver::start().await;
    receiver.always(Reply::ok().body(b"a\0\xffb".to_vec()));
    assert_eq!(answered(client().send(post(receiver.url("/"))).await).excerpt, "a\u{fffd}b");
}

#[tokio::test]
async fn an_error_status_counts_even_if_its_body_is_broken() {
    let receiver = Receiver::start().await;
    let client = client();
    for broken in [Reply::gone().reset_after_headers(), Reply::gone().close_after_headers()] {
        receiver.next(broken);
        assert_eq!(answered(client.send(post(receiver.url("/"))).await).status, 410);
    }
    receiver.next(Reply::too_many_requests("9").body("slow dow").body_never_ends());
    let answer = answered(client.send(post_soon(receiver.url("/"))).await);
    assert_eq!((answer.status, answer.retry_after.as_deref()), (429, Some("9")));
    assert_eq!(answer.excerpt, "slow dow");
}
