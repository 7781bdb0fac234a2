//! Only public addresses and allowed ones are dialled.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use waybill::domain::attempt::ErrorKind;
use waybill::webhook::{Client, WebhookSettings};

use super::{answered, client, client_that_looks_up, failed, post, settings};
use crate::support::receiver::{Receiver, Reply};

fn ips<const N: usize>(texts: [&str; N]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

#[tokio::test]
async fn private_address_literals_are_refused_in_every_spelling() {
    let receiver = Receiver::start().await;
    let port = receiver.address().port();
    let strict = Client::new(&WebhookSettings::default()).unwrap();
    for host in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127%2e0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "0",
        "localhost",
        "a.localhost.",
    ] {
        let detail = failed(strict.send(post(format!("http://{host}:{port}/"))).await, ErrorKind::AddressRefused);
        assert!(detail.contains("not a public address"), "{host}: {detail}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn an_allowed_network_can_be_reached_by_literals_and_names() {
    let receiver = Receiver::start().await;
    let port = receiver.address().port();
    let client = client_that_looks_up(&settings(), |_| Ok(ips(["127.0.0.1"])));
    for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "hooks.example", "localhost"] {
        answered(client.send(post(format!("http://{host}:{port}/"))).await);
    }
    failed(client.send(post(format!("http://[::1]:{port}/"))).await, ErrorKind::AddressRefused);
    assert_eq!(receiver.count(), 5);
}

#[tokio::test]
async fn names_are_resolved_by_the_system() {
    let receiver = Receiver::start().await;
    let url = format!("http://localhost:{}/", receiver.address().port());
    let settings = WebhookSettings { allow: "127.0.0.0/8,::1".parse().unwrap(), ..WebhookSettings::default() };
    answered(Client::new(&settings).unwrap().send(post(url)).await);
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused_without_showing_the_address() {
    let receiver = Receiver::start().await;
    let url = format!("http://hooks.example:{}/", receiver.address().port());
    let client = client_that_looks_up(&WebhookSettings::default(), |_| Ok(ips(["127.0.0.1"])));
    let detail = failed(client.send(post(url)).await, ErrorKind::AddressRefused);
    assert_eq!(detail, "the host leads to an address that is not public (loopback)");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_with_one_bad_address_is_refused_and_nothing_is_dialled() {
    let receiver = Receiver::start().await;
    let url = format!("http://hooks.example:{}/", receiver.address().port());
    for addresses in [["127.0.0.1", "10.0.0.7"], ["fd00:ec2::254", "127.0.0.1"], ["127.0.0.1", "::1"]] {
        let client = client_that_looks_up(&settings(), move |_| Ok(ips(addresses)));
        failed(client.send(post(&url)).await, ErrorKind::AddressRefused);
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_that_is_dialled() {
    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    let receiver = Receiver::start().await;
    let url = format!("http://hooks.example:{}/", receiver.address().port());
    // A client that resolved the name twice, to check and to dial, would find another address the
    // second time.
    let client = client_that_looks_up(&settings(), |_| match LOOKUPS.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(ips(["127.0.0.1"])),
        _ => Ok(ips(["169.254.169.254"])),
    });
    answered(client.send(post(&url)).await);
    assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
    // A new connection means a new look-up and a new check.
    receiver.next(Reply::close());
    failed(client.send(post(&url)).await, ErrorKind::Connection);
    failed(client.send(post(&url)).await, ErrorKind::AddressRefused);
    assert_eq!((LOOKUPS.load(Ordering::SeqCst), receiver.connections()), (2, 1));
}

#[tokio::test]
async fn an_invalid_webhook_url_is_not_dialled() {
    let receiver = Receiver::start().await;
    let address = receiver.address();
    for url in [
        format!("ftp://{address}/"),
        format!("http://user:word@{address}/"),
        format!("http://{address}/#part"),
        format!("http://{address}/a b"),
        "http://127.0.0.1:0/".to_owned(),
        "hooks".to_owned(),
    ] {
        failed(client().send(post(&url)).await, ErrorKind::AddressRefused);
    }
    assert_eq!(receiver.connections(), 0);
}
