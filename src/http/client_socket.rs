//! The socket of a client's connection.
//!
//! It passes reads and writes on to the TCP socket, counts the bytes sent and reports incidents to
//! [`SentClaims`]. Over TLS these bytes are the encrypted ones, because TLS runs above the socket
//! ([`super::client_stream`]). When the server closes a connection with undecided claims, its own side is
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

/// The time before the first check whether the client has acknowledged its response, while it waits for the
/// server to announce the close. The intervals double up to `CHECK_INTERVAL`.
const FIRST_CHECK: Duration = Duration::from_millis(2);

/// The maximum time for which a connection that the server has closed stays open, for a client that
/// is slow to read its response.
const MAX_LINGER: Duration = Duration::from_secs(75);

pub(crate) struct ClientSocket {
    socket: TcpStream,
    claims: Rc<SentClaims>,
    is_encrypted: bool,
    /// Whether the client has closed its side of the TCP connection.
    is_closed_by_client: bool,
    is_shut_down: bool,
    closing: Option<Closing>,
}

/// The state of a connection that is about to end, while the server waits for the decision about claims.
struct Closing {
    next_check: Pin<Box<Sleep>>,
    interval: Duration,
    until: Instant,
}

impl ClientSocket {
    pub(crate) fn new(socket: TcpStream, is_encrypted: bool) -> Self {
        ClientSocket {
            socket,
            claims: Rc::default(),
            is_encrypted,
            is_closed_by_client: false,
            is_shut_down: false,
            closing: None,
        }
    }

    /// Returns the claims that are sent over this connection.
    pub(crate) fn claims(&self) -> Rc<SentClaims> {
        self.claims.clone()
    }

    /// Reports what happened to the connection.
    pub(crate) fn report(&self, incident: Incident) {
        self.claims.decide(incident, || TcpInfo::of(&self.socket));
    }

    /// Returns whether the client has closed its side of the TCP connection.
    pub(crate) fn is_closed_by_client(&self) -> bool {
        self.is_closed_by_client
    }

    /// Waits until all claims are decided, on a connection on which no further request is served.
    pub(crate) fn poll_decided(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, CHECK_INTERVAL, |socket| socket.claims.is_empty())
    }

    /// Waits until the client has acknowledged the responses of all undecided claims, on a connection on which
    /// no further request is served.
    pub(crate) fn poll_acknowledged(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, FIRST_CHECK, |socket| socket.claims.are_acknowledged(|| TcpInfo::of(&socket.socket)))
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, first_check: Duration, is_over: impl Fn(&Self) -> bool) -> Poll<()> {
        while !is_over(self) {
            if !self.is_closed_by_client && self.poll_discard(cx).is_ready() {
                continue;
            }
            let closing = self.closing.get_or_insert_with(|| Closing::begin(first_check));
            ready!(closing.next_check.as_mut().poll(cx));
            let incident = closing.schedule_check();
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

impl Closing {
    fn begin(first_check: Duration) -> Self {
        let until = Instant::now() + MAX_LINGER;
        Closing { next_check: Box::pin(sleep(first_check)), interval: first_check, until }
    }

    /// Schedules the next check. Returns what the present one finds.
    fn schedule_check(&mut self) -> Incident {
        let now = Instant::now();
        self.interval = CHECK_INTERVAL.min(self.interval * 2);
        self.next_check.as_mut().reset(now + self.interval);
        if now < self.until { Incident::Quiet } else { Incident::Abandoned }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = ready!(Pin::new(&mut self.socket).poll_read(cx, buffer));
        match &outcome {
            Ok(()) if buffer.filled().len() == before => {
                self.is_closed_by_client = true;
                self.report(Incident::Closed);
            }
            // Encrypted bytes need not be a request: only the stream above knows.
            Ok(()) if self.is_encrypted => {}
            Ok(()) => self.report(Incident::Received),
            Err(_) => self.report(Incident::Failed),
        }
        Poll::Ready(outcome)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes));
        match &outcome {
            Ok(sent) => self.claims.record_sent(*sent),
            Err(_) => self.report(Incident::Failed),
        }
        Poll::Ready(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            if self.is_encrypted {
                // TLS has sent its `close_notify` before, and the client may have reset the connection already.
                self.claims.record_announced_close();
            }
            self.report(Incident::Quiet);
            let outcome = ready!(Pin::new(&mut self.socket).poll_shutdown(cx));
            if outcome.is_err() {
                self.report(Incident::Failed);
                return Poll::Ready(outcome);
            }
            self.is_shut_down = true;
        }
        self.poll_decided(cx).map(Ok)
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.report(Incident::Abandoned);
    }
}
