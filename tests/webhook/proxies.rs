//! A proxy is used if it is configured, and never because of the environment.

use std::env;
use std::process::Command;

use waybill::domain::attempt::ErrorKind;
use waybill::webhook::{Client, WebhookSettings};

use super::{answered, client, failed, post};
use crate::support::receiver::{Receiver, Reply};

/// The variable with the URL to which the child process of the test below sends.
const TARGET: &str = "WAYBILL_TEST_WEBHOOK_TARGET";

/// The environment belongs to the process, so the test runs itself in another one.
#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_environment_are_ignored() {
    if let Ok(target) = env::var(TARGET) {
        answered(client().send(post(target)).await);
        return;
    }
    let (receiver, proxy) = (Receiver::start().await, Receiver::start().await);
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "webhook::proxies::proxies_of_the_environment_are_ignored"]);
    child.env(TARGET, receiver.url("/")).env_remove("NO_PROXY").env_remove("no_proxy").env_remove("REQUEST_METHOD");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, proxy.url(""));
    }
    let outcome = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stdout));
    assert_eq!((receiver.count(), proxy.connections()), (1, 0));
}

#[tokio::test]
async fn a_configured_proxy_may_have_a_private_address() {
    let proxy = Receiver::start().await;
    proxy.always(Reply::status(201));
    let settings = WebhookSettings { proxy: Some(proxy.url("")), ..WebhookSettings::default() };
    let client = Client::new(&settings).unwrap();
    assert_eq!(answered(client.send(post("http://hooks.invalid/path")).await).status, 201);
    assert_eq!(proxy.so_far()[0].path, "http://hooks.invalid/path");
    // What can be checked here still is.
    failed(client.send(post("http://10.0.0.1/")).await, ErrorKind::AddressRefused);
    assert_eq!(proxy.count(), 1);
}

#[tokio::test]
async fn a_proxy_that_refuses_a_tunnel_is_a_connection_failure() {
    let proxy = Receiver::start().await;
    proxy.always(Reply::status(403));
    let settings = WebhookSettings { proxy: Some(proxy.url("")), ..WebhookSettings::default() };
    failed(Client::new(&settings).unwrap().send(post("https://hooks.invalid/")).await, ErrorKind::Connect);
    assert_eq!(proxy.received(1).await[0].method, "CONNECT");
}

#[test]
fn an_invalid_proxy_url_is_refused_at_once() {
    for bad in ["", "http://", "proxy.internal:3128", "socks5://127.0.0.1:1080", "/proxy"] {
        let settings = WebhookSettings { proxy: Some(bad.into()), ..WebhookSettings::default() };
        assert!(Client::new(&settings).unwrap_err().contains("the proxy must be"), "{bad}");
    }
}
