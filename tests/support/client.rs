//! The HTTP client of tests.

/// A client that goes straight to where it is told to.
pub fn http_client() -> reqwest::Client {
    // Whoever comes second finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().expect("a client")
}
