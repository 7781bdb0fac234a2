//! TLS of the server: the certificate and its renewal, and the handshake of a connection.

mod certificate;
mod handshake;
mod renewal;

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::{Semaphore, watch};

pub(crate) use certificate::CertificateFiles;
pub(crate) use handshake::{Handshake, shake_hands};
pub(crate) use renewal::Renewal;

/// What the handshakes of all threads share.
#[derive(Clone)]
pub(crate) struct Tls {
    /// The configuration with the current certificate.
    config: watch::Receiver<Arc<ServerConfig>>,
    /// A permit for each handshake that may be under way.
    handshakes: Arc<Semaphore>,
    /// The time within which a handshake must end, including its wait for a permit.
    timeout: Duration,
}

/// Loads the certificate. Returns an error that names the file at fault.
pub(crate) fn prepare(files: CertificateFiles) -> Result<(Tls, Renewal), String> {
    let stamp = files.stamp();
    let (sender, config) = watch::channel(files.load()?);
    let handshakes = Arc::new(Semaphore::new(handshake::MAX_HANDSHAKES));
    let tls = Tls { config, handshakes, timeout: handshake::HANDSHAKE_TIMEOUT };
    Ok((tls, Renewal::new(files, stamp, sender)))
}
