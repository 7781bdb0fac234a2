//! The receiver's TLS identity.

use std::io::Write;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tempfile::NamedTempFile;
use tokio_rustls::TlsAcceptor;

/// A certificate with its key, and the file that clients need in order to trust it.
pub(super) struct Identity {
    pub acceptor: TlsAcceptor,
    pub certificate: NamedTempFile,
}

impl Identity {
    /// Creates a self-signed certificate for these names or addresses.
    pub(super) fn self_signed(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let own = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let mut certificate = NamedTempFile::new().expect("a file");
        certificate.write_all(own.cert.pem().as_bytes()).expect("the certificate is written");
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .expect("a certificate that fits its key");
        Self { acceptor: TlsAcceptor::from(Arc::new(config)), certificate }
    }
}
