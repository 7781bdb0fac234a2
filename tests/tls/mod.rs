//! A server that speaks TLS.

mod claims;
mod http2;
mod refusals;
mod renewal;
mod serving;
mod sessions;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{App, Options};

/// A certificate for this machine, which signs itself.
struct Identity {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

impl Identity {
    fn new() -> Self {
        Self::for_names(&["localhost", "127.0.0.1"])
    }

    fn for_names(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let pair = rcgen::generate_simple_self_signed(names).expect("a certificate");
        Identity {
            certificate: pair.cert.der().clone(),
            certificate_pem: pair.cert.pem(),
            key_pem: pair.signing_key.serialize_pem(),
        }
    }
}

/// The folder with the two files of a server.
struct Files(TempDir);

impl Files {
    fn with(identity: &Identity) -> Self {
        let files = Files(tempfile::tempdir().expect("a folder"));
        files.install(identity);
        files
    }

    /// Replaces both files, one after the other, as most tools do.
    fn install(&self, identity: &Identity) {
        self.replace(&self.certificate(), &identity.certificate_pem);
        self.replace(&self.key(), &identity.key_pem);
    }

    fn replace(&self, file: &std::path::Path, text: &str) {
        let new = self.0.path().join("new");
        fs::write(&new, text).expect("a file");
        fs::rename(new, file).expect("the same folder");
    }

    fn certificate(&self) -> PathBuf {
        self.0.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("key.pem")
    }

    fn flags(&self) -> Vec<String> {
        vec![
            format!("--tls-cert={}", self.certificate().display()),
            format!("--tls-key={}", self.key().display()),
            // What is delivered is delivered by a wake-up.
            "--poll-interval-ms=60000".into(),
            "--notify=false".into(),
        ]
    }
}

/// A server that speaks TLS, with clients that trust it.
struct TlsApp {
    app: App,
    identity: Identity,
    files: Files,
}

impl std::ops::Deref for TlsApp {
    type Target = App;
    fn deref(&self) -> &App {
        &self.app
    }
}

impl TlsApp {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(flags: &[&str]) -> Self {
        let identity = Identity::new();
        let files = Files::with(&identity);
        let flags = [files.flags(), flags.iter().map(|flag| (*flag).to_owned()).collect()].concat();
        let mut app = App::start_with(Options { flags, ..Options::default() }).await;
        app.client = client_that_trusts(&[&identity]);
        TlsApp { app, identity, files }
    }

    fn address(&self) -> &str {
        self.app.base.trim_start_matches("https://")
    }

    /// Opens a connection that speaks one protocol: `h2` or `http/1.1`.
    async fn connect(&self, protocol: &str) -> TlsStream<TcpStream> {
        connect(self.address(), &[&self.identity], protocol).await.expect("the server speaks TLS")
    }
}

fn client_that_trusts(identities: &[&Identity]) -> reqwest::Client {
    let _ = ring::default_provider().install_default();
    let roots = identities
        .iter()
        .map(|identity| reqwest::Certificate::from_pem(identity.certificate_pem.as_bytes()).expect("a certificate"));
    reqwest::Client::builder().no_proxy().tls_certs_only(roots).build().expect("a client")
}

async fn connect(address: &str, trusted: &[&Identity], protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for identity in trusted {
        roots.add(identity.certificate.clone()).expect("a certificate");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}
