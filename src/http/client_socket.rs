//! A client's connection, as the HTTP server reads and writes it.
//!
//! It passes everything on to the socket, counts what it writes and reports to
//! [`SentClaims`]. When the server closes a connection on which claims are undecided, it
//! closes its own side at once and keeps the socket until they are decided: until the client
//! closes or resets, or until nothing more is to be expected.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::sent_claims::{Incident, SentClaims};
use super::tcp_info::TcpInfo;

/// How often a connection that the server has closed is looked at. The kernel announces a
/// close and a reset, but no acknowledgement.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a connection that the server has closed is kept for a client that is slow to take
/// the rest of its response.
const KEPT_FOR: Duration = Duration::from_secs(75);

/// A connection to a client.
pub struct ClientSocket {
    socket: TcpStream,
    claims: Rc<SentClaims>,
    closing: Option<Closing>,
}

/// A connection whose own side the server has closed.
struct Closing {
    look: Pin<Box<Sleep>>,
    until: Instant,
}

impl ClientSocket {
    /// Takes a socket over.
    pub fn new(socket: TcpStream) -> Self {
        ClientSocket { socket, claims: Rc::default(), closing: None }
    }

    /// The claims that are sent over it.
    pub fn claims(&self) -> Rc<SentClaims> {
        self.claims.clone()
    }

    fn note(&self, incident: Incident) {
        self.claims.note(incident, || TcpInfo::of(&self.socket));
    }

    /// Waits until all claims are decided. The server's own side is closed.
    fn poll_decided(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.claims.is_empty() {
            if !self.claims.is_closed_by_client() && self.poll_discard(cx).is_ready() {
                continue;
            }
            let Some(closing) = &mut self.closing else { break };
            ready!(closing.look.as_mut().poll(cx));
            let now = Instant::now();
            closing.look.as_mut().reset(now + LOOK_EVERY);
            let incident = if now < closing.until { Incident::Quiet } else { Incident::GivenUp };
            self.note(incident);
        }
        Poll::Ready(())
    }

    /// Reads what nobody wants any more, to learn of the client's end.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut unwanted = [MaybeUninit::uninit(); 1024];
        Pin::new(self).poll_read(cx, &mut ReadBuf::uninit(&mut unwanted)).map(drop)
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = ready!(Pin::new(&mut self.socket).poll_read(cx, buffer));
        self.note(match &outcome {
            Ok(()) if buffer.filled().len() == before => Incident::Closed,
            Ok(()) => Incident::Received,
            Err(_) => Incident::Failed,
        });
        Poll::Ready(outcome)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.claims.before_write(bytes.len());
        let outcome = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes));
        match &outcome {
            Ok(written) => self.claims.after_write(*written),
            Err(_) => self.note(Incident::Failed),
        }
        Poll::Ready(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_none() {
            self.note(Incident::Quiet);
            let outcome = ready!(Pin::new(&mut self.socket).poll_shutdown(cx));
            if outcome.is_err() {
                self.note(Incident::Failed);
                return Poll::Ready(outcome);
            }
            self.closing = Some(Closing { look: Box::pin(sleep(LOOK_EVERY)), until: Instant::now() + KEPT_FOR });
        }
        self.poll_decided(cx).map(Ok)
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.note(Incident::GivenUp);
    }
}
