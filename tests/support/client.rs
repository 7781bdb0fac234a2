//! The HTTP client of the tests.

/// Builds a client that uses no proxy and follows no redirects.
pub(crate) fn http_client() -> reqwest::Client {
    // Only the first caller installs the provider; later calls fail harmlessly.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().expect("a client")
}
