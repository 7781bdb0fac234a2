//! The HTTP client of the tests.

use reqwest::header::{AUTHORIZATION, HeaderMap};

/// Builds a client that uses no proxy and follows no redirects.
pub(crate) fn http_client() -> reqwest::Client {
    http_client_with(HeaderMap::new())
}

/// Builds a client that sends an API key with every request.
pub(crate) fn with_key(key: &str) -> reqwest::Client {
    let value = format!("Bearer {key}").parse().expect("a header");
    http_client_with(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

/// Builds a client that sends these headers with every request.
pub(crate) fn http_client_with(headers: HeaderMap) -> reqwest::Client {
    // Only the first caller installs the provider; later calls fail harmlessly.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    builder.default_headers(headers).build().expect("a client")
}
