//! TLS to the database: which certificates are accepted, and which one is shown.
//!
//! As with libpq, `require` only encrypts, unless `sslrootcert` names authorities; then it verifies like
//! `verify-ca`. Only `verify-full` makes sure that the connection leads to the host of the address.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::store::connection::address::{Roots, SslMode, TlsSettings};

/// The protocol in the handshake, which PostgreSQL 17 checks if it is offered.
const PROTOCOL: &[u8] = b"postgresql";

/// Returns the configuration of a connection. The files are read each time, so that renewed certificates
/// are used. An error names the file at fault.
pub(crate) fn client_config(settings: &TlsSettings) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match (settings.mode, &settings.roots) {
        (SslMode::VerifyFull, roots) => builder.with_root_certificates(read_roots(roots)?),
        (SslMode::VerifyCa, roots) | (_, roots @ Roots::File(_)) => {
            let verifier = AnyHost { roots: Some(read_roots(roots)?), provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        (_, Roots::NotGiven | Roots::System) => {
            let verifier = AnyHost { roots: None, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let mut config = match &settings.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain =
                read_certificates(certificate).map_err(|why| format!("sslcert {}: {why}", certificate.display()))?;
            let private =
                PrivateKeyDer::from_pem_file(key).map_err(|why| format!("sslkey {}: {why}", key.display()))?;
            let unusable = |why| format!("sslcert {} with sslkey {}: {why}", certificate.display(), key.display());
            builder.with_client_auth_cert(chain, private).map_err(unusable)?
        }
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn read_roots(roots: &Roots) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::NotGiven | Roots::System => {
            let system = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(system.certs);
            if store.is_empty() {
                return Err(format!("the system has no root certificates: {:?}", system.errors));
            }
        }
        Roots::File(file) => {
            let named = |why: String| format!("sslrootcert {}: {why}", file.display());
            for certificate in read_certificates(file).map_err(named)? {
                store.add(certificate).map_err(|error| named(error.to_string()))?;
            }
        }
    }
    Ok(store)
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err("the file contains no certificate".into()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(error.to_string()),
    }
}

/// Accepts certificates for any host: those that lead to `roots`, or, without roots, all.
#[derive(Debug)]
struct AnyHost {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(certificate)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
