//! A certificate that is replaced while the server runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Identity, TlsApp, client_that_trusts, connect};
use crate::support::{until, within_patience};

/// Returns whether new connections get the certificate of `identity`.
async fn serves(app: &TlsApp, identity: &Identity) -> bool {
    connect(app.address(), &[identity], "http/1.1").await.is_ok()
}

/// Half of the clients keep their connection, and half open one for each request.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_replaced_under_load_without_an_error() {
    let app = TlsApp::start().await;
    let (second, third) = (Identity::new(), Identity::new());
    let is_over = Arc::new(AtomicBool::new(false));
    let requests = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (is_over, requests) = (is_over.clone(), requests.clone());
            let client = client_that_trusts(&[&app.identity, &second, &third]);
            let request = client.get(format!("{}/ready", app.base));
            let request = if number % 2 == 0 { request } else { request.header("connection", "close") };
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let response = request.try_clone().expect("no body").send().await.expect("a response");
                    assert_eq!(response.status(), 200);
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut kept = app.connect("http/1.1").await;
    for identity in [&second, &third] {
        let before = requests.load(Ordering::Relaxed);
        app.files.install(identity);
        until("the new certificate is served", async || serves(&app, identity).await).await;
        until("requests go on", async || requests.load(Ordering::Relaxed) > before + 20).await;
    }
    assert!(!serves(&app, &app.identity).await, "the old certificate is no longer served");
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("no request failed");
    }
    // A connection from before both changes is still served.
    kept.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.expect("sent");
    let mut response = String::new();
    within_patience(kept.read_to_string(&mut response)).await.expect("a response");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_pair_leaves_the_old_certificate_in_place_until_a_usable_one_comes() {
    let app = TlsApp::start().await;
    let second = Identity::new();
    // The certificate and the key do not fit each other.
    app.files.replace(&app.files.certificate(), &second.certificate_pem);
    assert!(serves(&app, &app.identity).await);
    app.files.replace(&app.files.certificate(), "nothing");
    assert!(serves(&app, &app.identity).await);
    app.files.install(&second);
    until("the new certificate is served", async || serves(&app, &second).await).await;
}
