//! The trusted certificates: the system's, and those from a file.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Returns the TLS configuration of all connections. A system without certificates is not an error,
/// because plain HTTP works without them. An unusable `ca_file` is an error.
pub(crate) fn tls_config(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(file) = ca_file {
        add_file(&mut roots, file).map_err(|why| format!("cannot read certificates from {}: {why}", file.display()))?;
    }
    if roots.is_empty() {
        log::warn!("no certificates are trusted, so webhooks cannot be sent to https URLs (install ca-certificates)");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| error.to_string())?;
    let before = roots.len();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.len() == before { Err("the file contains none".into()) } else { Ok(()) }
}
