//! The stream of a client's connection: the socket itself, or TLS above the socket.
//!
//! It tells [`SentClaims`] about the bytes of responses, and about what the client says inside TLS. A
//! client that closes its side is treated the same with and without TLS. Over TLS it may announce the
//! close (`close_notify`), or just close the socket. HTTP/1 knows where a request ends, so a missing
//! announcement cannot cut off a request unnoticed.
//!
//! The announcement shows neither that the client has read its response, nor that it has not: a client
//! that has ended with an unread response resets the connection right after it. So an announcement with
//! undecided claims is answered only when they are decided, by the close or the reset of the socket.
//!
//! The server's own announcement waits until the client's kernel has acknowledged the responses before it.
//! A client that has read its response may close with the announcement unread. Its kernel then resets the
//! connection, and a reset acknowledges nothing: sent too early, the announcement would make a response
//! that was read look lost.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::client_socket::ClientSocket;
use super::sent_claims::{Incident, SentClaims};

/// A client's connection, after its handshake.
pub(crate) enum ClientStream {
    Plain(ClientSocket),
    Tls(Box<TlsStream<ClientSocket>>),
}

impl ClientStream {
    pub(crate) fn plain(socket: TcpStream) -> Self {
        ClientStream::Plain(ClientSocket::new(socket, false))
    }

    /// Returns the claims that are sent over this connection.
    pub(crate) fn claims(&self) -> Rc<SentClaims> {
        self.socket().claims()
    }

    fn socket(&self) -> &ClientSocket {
        match self {
            ClientStream::Plain(socket) => socket,
            ClientStream::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Returns whether the kernel has all bytes that this stream has accepted.
    fn is_flushed(&self) -> bool {
        match self {
            ClientStream::Plain(_) => true,
            ClientStream::Tls(tls) => !tls.get_ref().1.wants_write(),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let tls = match this {
            ClientStream::Plain(socket) => return Pin::new(socket).poll_read(cx, buffer),
            ClientStream::Tls(tls) => tls,
        };
        let before = buffer.filled().len();
        match ready!(Pin::new(tls).poll_read(cx, buffer)) {
            Ok(()) if buffer.filled().len() > before => this.socket().report(Incident::Received),
            Ok(()) => this.claims().record_close_by_client(),
            // The client has closed the socket without an announcement.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let claims = this.claims();
        claims.before_write(bytes.len());
        let written = ready!(match this {
            ClientStream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            ClientStream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        })?;
        claims.after_write(written);
        if this.is_flushed() {
            claims.record_flush();
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(match this {
            ClientStream::Plain(socket) => Pin::new(socket).poll_flush(cx),
            ClientStream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        })?;
        this.claims().record_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tls = match self.get_mut() {
            ClientStream::Plain(socket) => return Pin::new(socket).poll_shutdown(cx),
            ClientStream::Tls(tls) => tls,
        };
        ready!(Pin::new(&mut *tls).poll_flush(cx))?;
        let socket = tls.get_mut().0;
        socket.claims().record_flush();
        if socket.claims().is_closed_by_client() && !socket.is_closed_by_client() {
            ready!(socket.poll_decided(cx));
        }
        ready!(socket.poll_acknowledged(cx));
        Pin::new(tls).poll_shutdown(cx)
    }
}
