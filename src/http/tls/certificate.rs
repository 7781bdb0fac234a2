//! The certificate of the server and its key, in two PEM files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The protocols that the server offers, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [super::handshake::HTTP2, b"http/1.1"];

/// The maximum number of bytes of either file. It keeps a wrong path from filling the memory.
const MAX_BYTES: u64 = 1024 * 1024;

/// The two files.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFiles {
    /// The certificate, followed by the certificates that lead to its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What changes when one of the files is replaced or written to.
pub(super) type Stamp = [Option<FileStamp>; 2];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// When its content was changed, in seconds and nanoseconds.
    modified: (i64, i64),
    /// When its content, owner or permissions were changed: a file that could not be read may be readable now.
    changed: (i64, i64),
}

impl CertificateFiles {
    /// Returns the present stamp. It follows links, so that the switch of a link counts as a change.
    pub(super) fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|file| {
            let data = fs::metadata(file).ok()?;
            Some(FileStamp {
                device: data.dev(),
                inode: data.ino(),
                bytes: data.len(),
                modified: (data.mtime(), data.mtime_nsec()),
                changed: (data.ctime(), data.ctime_nsec()),
            })
        })
    }

    /// Returns the configuration of TLS with the certificate and the key. An error names the file at fault.
    pub(super) fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let (certificate, key) = (&self.certificate, &self.key);
        let chain = read_chain(certificate)
            .map_err(|why| format!("cannot read the certificate in {}: {why}", certificate.display()))?;
        let private =
            read_key(key).map_err(|why| format!("cannot read the private key in {}: {why}", key.display()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|why| format!("cannot use {} with the key in {}: {why}", certificate.display(), key.display()))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(Arc::new(config))
    }
}

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err("the file contains none".into()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(error.to_string()),
    }
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| error.to_string())
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    match fs::metadata(file) {
        Ok(data) if data.len() > MAX_BYTES => Err(format!("the file is larger than {MAX_BYTES} bytes")),
        _ => fs::read(file).map_err(|error| error.to_string()),
    }
}
