//! The webhook client, against a receiver that answers well and badly.

mod addresses;
mod answers;
mod connections;
mod deadlines;
mod failures;
mod many;
mod proxies;
mod receiver;
mod requests;
mod tls;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use waybill::domain::attempt::ErrorKind;
use waybill::webhook::{Client, Exchange, Lookup, WebhookRequest, WebhookResponse, WebhookSettings};

use crate::support::PATIENCE;

/// Long enough for any expected response, and short enough to wait for.
const SOON: Duration = Duration::from_secs(1);

/// Settings under which a receiver of the test can be reached.
fn settings() -> WebhookSettings {
    WebhookSettings { allow: "127.0.0.0/8".parse().expect("a network"), ..WebhookSettings::default() }
}

fn client() -> Client {
    Client::new(&settings()).expect("a client")
}

/// Returns a client for which every name has the addresses that `addresses` returns.
fn client_that_looks_up(
    settings: &WebhookSettings,
    addresses: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
) -> Client {
    let lookup: Lookup = Arc::new(move |name| std::future::ready(addresses(&name)).boxed());
    Client::with_lookup(settings, lookup).expect("a client")
}

fn post(url: impl Into<String>) -> WebhookRequest {
    WebhookRequest {
        method: "POST".into(),
        url: url.into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: Bytes::from_static(br#"{"n":1}"#),
        timeout: PATIENCE,
        redacted: Vec::new(),
    }
}

fn post_soon(url: impl Into<String>) -> WebhookRequest {
    WebhookRequest { timeout: SOON, ..post(url) }
}

/// Asserts a response.
#[track_caller]
fn answered(exchange: Exchange) -> WebhookResponse {
    exchange.result.unwrap_or_else(|error| panic!("{error:?}"))
}

/// Asserts a failure of this kind. Returns its detail.
#[track_caller]
fn failed(exchange: Exchange, kind: ErrorKind) -> String {
    let error = exchange.result.expect_err("a failure");
    assert_eq!(error.kind, kind, "{}", error.detail);
    assert!((1..=300).contains(&error.detail.chars().count()), "{}", error.detail);
    error.detail
}
