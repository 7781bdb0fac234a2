//! The handshake of a connection, before its first request.
//!
//! The number of handshakes under way is limited, and so is their time: a client that connects and sends
//! nothing costs a socket for some seconds, and nothing else. A client that speaks plain HTTP is told so.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Tls;
use crate::http::client_socket::ClientSocket;
use crate::http::client_stream::ClientStream;

/// The name of HTTP/2 in the handshake.
pub(super) const HTTP2: &[u8] = b"h2";

/// The time within which a handshake must end, including its wait for a permit.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of handshakes under way. Further ones wait.
pub(super) const MAX_HANDSHAKES: usize = 4_000;

/// The time for which the server waits for the end of a connection that it has refused.
const LINGER: Duration = Duration::from_secs(1);

const USE_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n\
    content-length: 42\r\n\r\nThis port speaks TLS: use an https:// URL\n";

/// A finished handshake.
pub(crate) enum Handshake {
    Http1(ClientStream),
    Http2(ClientStream),
}

/// Carries out the handshake of a connection. Returns `None` if the client was refused.
pub(crate) async fn shake_hands(tls: &Tls, socket: TcpStream) -> io::Result<Option<Handshake>> {
    match timeout(tls.timeout, shake(tls, socket)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long")),
    }
}

async fn shake(tls: &Tls, socket: TcpStream) -> io::Result<Option<Handshake>> {
    // Every method of HTTP begins with a letter; TLS begins with the byte 22. A client that sends nothing gets no
    // permit: some thousands of them could keep all others waiting.
    let mut first = [0];
    if socket.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
        refuse_plain(socket).await?;
        return Ok(None);
    }
    let _permit = tls.handshakes.acquire().await.map_err(io::Error::other)?;
    let config = tls.config.borrow().clone();
    let stream = TlsAcceptor::from(config).accept(ClientSocket::new(socket, true)).await?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let stream = ClientStream::Tls(Box::new(stream));
    Ok(Some(if is_http2 { Handshake::Http2(stream) } else { Handshake::Http1(stream) }))
}

/// Responds to a request without TLS, and closes the connection.
async fn refuse_plain(mut socket: TcpStream) -> io::Result<()> {
    socket.write_all(USE_TLS).await?;
    socket.shutdown().await?;
    // If the server closed the socket with unread bytes, the client could see a reset instead of the response.
    let discarding = async { while socket.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(LINGER, discarding).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::http::tls::{CertificateFiles, prepare};

    /// Returns the TLS of a server with these limits, and a client that trusts it.
    fn tls(handshakes: usize, timeout: Duration) -> (Tls, TlsConnector) {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles { certificate: folder.path().join("cert"), key: folder.path().join("key") };
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&files.certificate, pair.cert.pem()).unwrap();
        std::fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
        let (tls, _) = prepare(files).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(pair.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = Tls { handshakes: Arc::new(Semaphore::new(handshakes)), timeout, ..tls };
        (tls, TlsConnector::from(Arc::new(client)))
    }

    /// Returns both ends of a connection, the client's first.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    const ENDLESS: Duration = Duration::from_secs(3600);

    /// The first bytes of a greeting.
    const GREETING: &[u8] = b"\x16\x03\x01\x02";

    #[tokio::test]
    async fn a_client_that_sends_nothing_keeps_no_other_from_its_handshake() {
        let (tls, connector) = tls(1, ENDLESS);
        let (_silent, first) = connection().await;
        let mut first = Box::pin(shake_hands(&tls, first));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(tls.handshakes.available_permits(), 1);
        let (client, second) = connection().await;
        let client = tokio::spawn(connector.connect(ServerName::try_from("localhost").unwrap(), client));
        assert!(matches!(shake_hands(&tls, second).await, Ok(Some(Handshake::Http1(_)))));
        client.await.unwrap().unwrap();
        assert!(futures_util::poll!(&mut first).is_pending());
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_or_half_a_greeting_is_cut_off() {
        for greeting in [&b""[..], GREETING] {
            let (tls, _) = tls(10, Duration::from_millis(10));
            let (mut client, server) = connection().await;
            client.write_all(greeting).await.unwrap();
            let error = shake_hands(&tls, server).await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(!matches!(client.read(&mut [0]).await, Ok(1..)), "the connection is closed");
            assert_eq!(tls.handshakes.available_permits(), 10);
        }
    }

    #[tokio::test]
    async fn the_wait_for_a_permit_counts_as_well() {
        let (tls, _) = tls(0, Duration::from_millis(10));
        let (mut client, server) = connection().await;
        client.write_all(GREETING).await.unwrap();
        assert_eq!(shake_hands(&tls, server).await.err().unwrap().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_handshake_waits_until_one_of_those_under_way_has_ended() {
        let (tls, connector) = tls(1, ENDLESS);
        let (mut slow, first) = connection().await;
        slow.write_all(GREETING).await.unwrap();
        first.readable().await.unwrap();
        let mut first = Box::pin(shake_hands(&tls, first));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(tls.handshakes.available_permits(), 0);
        let (client, second) = connection().await;
        let mut second = Box::pin(shake_hands(&tls, second));
        let client = connector.connect(ServerName::try_from("localhost").unwrap(), client);
        let client = tokio::spawn(client);
        for _ in 0..100 {
            assert!(futures_util::poll!(&mut second).is_pending(), "the first has the only permit");
            tokio::task::yield_now().await;
        }
        drop(slow);
        assert!(first.await.is_err());
        assert!(matches!(second.await, Ok(Some(Handshake::Http1(_)))));
        client.await.unwrap().unwrap();
    }
}
