//! Loads the certificate again when its files change, or on SIGHUP.
//!
//! Open connections keep the certificate of their handshake; new ones get the new one. A pair that cannot
//! be used leaves the old one in place. It is reported once it has stayed the same between two checks:
//! while somebody replaces two files one after the other, they do not fit each other for a moment.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::certificate::{CertificateFiles, Stamp};

/// The time between two looks at the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches the two files.
pub(crate) struct Renewal {
    files: CertificateFiles,
    /// The stamp of the certificate in use.
    loaded: Stamp,
    /// The stamp of files that could not be used.
    unusable: Option<Unusable>,
    sender: watch::Sender<Arc<ServerConfig>>,
    check_interval: Duration,
}

struct Unusable {
    stamp: Stamp,
    is_reported: bool,
}

impl Renewal {
    pub(super) fn new(files: CertificateFiles, loaded: Stamp, sender: watch::Sender<Arc<ServerConfig>>) -> Self {
        Renewal { files, loaded, unusable: None, sender, check_interval: CHECK_INTERVAL }
    }

    /// Watches until the server stops.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut hang_ups = signal(SignalKind::hangup()).inspect_err(|error| log::warn!("no SIGHUP: {error}")).ok();
        loop {
            let hang_up = async {
                match &mut hang_ups {
                    Some(hang_ups) => hang_ups.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(self.check_interval) => {}
                _ = hang_up => {}
            }
            // The files may be on a slow disk.
            let checked = tokio::task::spawn_blocking(move || {
                self.check();
                self
            });
            match checked.await {
                Ok(renewal) => self = renewal,
                Err(error) => return log::error!("the certificate is not renewed any more: {error}"),
            }
        }
    }

    /// Loads the files if they have changed.
    fn check(&mut self) {
        let stamp = self.files.stamp();
        if stamp == self.loaded {
            self.unusable = None;
            return;
        }
        if self.unusable.as_ref().is_some_and(|unusable| unusable.is_reported && unusable.stamp == stamp) {
            return;
        }
        match self.files.load() {
            Ok(config) => {
                self.sender.send_replace(config);
                self.loaded = stamp;
                self.unusable = None;
                log::info!(file:% = self.files.certificate.display(); "new connections get the new certificate");
            }
            Err(cause) => {
                let is_settled = self.unusable.as_ref().is_some_and(|unusable| unusable.stamp == stamp);
                if is_settled {
                    log::warn!(cause; "the new certificate cannot be used; the old one stays");
                }
                self.unusable = Some(Unusable { stamp, is_reported: is_settled });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(files: &CertificateFiles, certificate: &str, key: &str) {
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
    }

    fn pair() -> (String, String) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (pair.cert.pem(), pair.signing_key.serialize_pem())
    }

    #[test]
    fn a_new_pair_replaces_the_old_one_and_an_unusable_one_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles { certificate: folder.path().join("cert"), key: folder.path().join("key") };
        let (first, second) = (pair(), pair());
        write(&files, &first.0, &first.1);
        let (tls, mut renewal) = crate::http::tls::prepare(files.clone()).unwrap();
        let mut config = tls.config.clone();
        renewal.check();
        assert!(!config.has_changed().unwrap());

        // The certificate is replaced before its key.
        write(&files, &second.0, &first.1);
        renewal.check();
        assert!(!config.has_changed().unwrap());
        assert!(renewal.unusable.as_ref().is_some_and(|unusable| !unusable.is_reported));
        renewal.check();
        assert!(renewal.unusable.as_ref().is_some_and(|unusable| unusable.is_reported));

        write(&files, &second.0, &second.1);
        renewal.check();
        assert!(config.has_changed().unwrap());
        config.mark_unchanged();
        assert!(renewal.unusable.is_none());

        std::fs::remove_file(&files.key).unwrap();
        renewal.check();
        renewal.check();
        assert!(!config.has_changed().unwrap());
        assert!(renewal.unusable.is_some_and(|unusable| unusable.is_reported));
    }

    #[tokio::test]
    async fn a_hang_up_signal_loads_the_new_pair_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles { certificate: folder.path().join("cert"), key: folder.path().join("key") };
        let (first, second) = (pair(), pair());
        write(&files, &first.0, &first.1);
        let (tls, renewal) = crate::http::tls::prepare(files.clone()).unwrap();
        let mut config = tls.config.clone();
        // The files are not looked at in time without the signal.
        let renewal = Renewal { check_interval: Duration::from_secs(3600), ..renewal };
        // Without a handler the signal would end the process of the tests.
        let _handler = signal(SignalKind::hangup()).unwrap();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(renewal.run(shutdown.clone()));
        write(&files, &second.0, &second.1);
        // The task may not have its handler yet, so the signal is repeated.
        while tokio::time::timeout(Duration::from_millis(10), config.changed()).await.is_err() {
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).unwrap();
        }
        shutdown.cancel();
        running.await.unwrap();
    }

    #[test]
    fn other_permissions_are_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles { certificate: folder.path().join("cert"), key: folder.path().join("key") };
        let pair = pair();
        write(&files, &pair.0, &pair.1);
        let before = files.stamp();
        // The clock of the file system moves in ticks.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let mut mode = 0;
        while files.stamp() == before && std::time::Instant::now() < deadline {
            mode ^= 0o040;
            std::fs::set_permissions(&files.key, std::os::unix::fs::PermissionsExt::from_mode(0o600 | mode)).unwrap();
        }
        assert_ne!(files.stamp(), before);
    }
}
