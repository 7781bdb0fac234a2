//! The socket of a client's connection.
//!
//! It passes reads and writes on to the TCP socket, counts the bytes written and reports incidents
//! to [`SentClaims`]. When the server closes a connection with undecided claims, its own side is
//! closed at once, but the socket stays open until the claims are decided: until the client closes
//! or resets the connection, or until `MAX_LINGER` has passed.

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

/// The time between two checks of a connection that the server has closed. The kernel signals a
/// close and a reset, but not an acknowledgement.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum time for which a connection that the server has closed stays open, for a client that
/// is slow to read its response.
const MAX_LINGER: Duration = Duration::from_secs(75);

pub(crate) struct ClientSocket {
    socket: TcpStream,
    claims: Rc<SentClaims>,
    closing: Option<Closing>,
}

/// The state of a connection after the server has closed its own side.
struct Closing {
    next_check: Pin<Box<Sleep>>,
    until: Instant,
}

impl ClientSocket {
    pub(crate) fn new(socket: TcpStream) -> Self {
        ClientSocket { socket, claims: Rc::default(), closing: None }
    }

    /// Returns the claims that are sent over this connection.
    pub(crate) fn claims(&self) -> Rc<SentClaims> {
        self.claims.clone()
    }

    fn report(&self, incident: Incident) {
        self.claims.decide(incident, || TcpInfo::of(&self.socket));
    }

    /// Waits until all claims are decided. Called after the server's own side is closed.
    fn poll_decided(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.claims.is_empty() {
            if !self.claims.is_closed_by_client() && self.poll_discard(cx).is_ready() {
                continue;
            }
            let Some(closing) = &mut self.closing else { break };
            ready!(closing.next_check.as_mut().poll(cx));
            let now = Instant::now();
            closing.next_check.as_mut().reset(now + CHECK_INTERVAL);
            let incident = if now < closing.until { Incident::Quiet } else { Incident::Abandoned };
            self.report(incident);
        }
        Poll::Ready(())
    }

    /// Reads and drops bytes, to notice when the client closes or resets the connection.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut discarded = [MaybeUninit::uninit(); 1024];
        Pin::new(self).poll_read(cx, &mut ReadBuf::uninit(&mut discarded)).map(drop)
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = ready!(Pin::new(&mut self.socket).poll_read(cx, buffer));
        self.report(match &outcome {
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
            Err(_) => self.report(Incident::Failed),
        }
        Poll::Ready(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_none() {
            self.report(Incident::Quiet);
            let outcome = ready!(Pin::new(&mut self.socket).poll_shutdown(cx));
            if outcome.is_err() {
                self.report(Incident::Failed);
                return Poll::Ready(outcome);
            }
            self.closing =
                Some(Closing { next_check: Box::pin(sleep(CHECK_INTERVAL)), until: Instant::now() + MAX_LINGER });
        }
        self.poll_decided(cx).map(Ok)
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.report(Incident::Abandoned);
    }
}
