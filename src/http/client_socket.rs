//! The socket of a client's connection.
//!
//! It passes reads and writes on to the TCP socket, counts the bytes sent and reports incidents to
//! [`SentClaims`]. Over TLS these bytes are the encrypted ones, because TLS runs above the socket
//! ([`super::client_stream`]). When the server closes a connection with undecided claims, its own side is
//! closed at once, but the socket stays open until the claims are decided: until the client closes
//! or resets the connection, or until `MAX_LINGER` has passed.
//!
//! A client that does not read its response keeps it in the server's memory. So a write that the kernel has not
//! accepted for `WRITE_TIMEOUT` fails, and the connection is reset. A client that waits for a response is not
//! affected: nothing is being written.

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

/// The time within which the kernel must accept further bytes of a response, or the client must acknowledge some. The
/// kernel accepts none before a part of its buffer is free, which may take long if the client reads slowly.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct ClientSocket {
    socket: TcpStream,
    write_timeout: Duration,
    /// The end of the present write, if the kernel does not accept its bytes at once.
    write_deadline: Option<WriteDeadline>,
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

/// When a write fails, unless the client acknowledges bytes until then.
struct WriteDeadline {
    at: Pin<Box<Sleep>>,
    /// The number of bytes that the client had acknowledged when the time began, if the system tells.
    acknowledged: Option<u64>,
}

impl ClientSocket {
    pub(crate) fn new(socket: TcpStream, is_encrypted: bool) -> Self {
        Self::with_write_timeout(socket, is_encrypted, WRITE_TIMEOUT)
    }

    fn with_write_timeout(socket: TcpStream, is_encrypted: bool, write_timeout: Duration) -> Self {
        ClientSocket {
            socket,
            write_timeout,
            write_deadline: None,
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

    /// Waits until the present write has taken too long. Returns the error with which it fails.
    fn poll_write_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let (socket, timeout) = (&self.socket, self.write_timeout);
        let acknowledged = || TcpInfo::of(socket).map(|info| info.acknowledged);
        let begin = || WriteDeadline { at: Box::pin(sleep(timeout)), acknowledged: acknowledged() };
        let deadline = self.write_deadline.get_or_insert_with(begin);
        loop {
            ready!(deadline.at.as_mut().poll(cx));
            let now = acknowledged();
            if now <= deadline.acknowledged {
                break;
            }
            deadline.acknowledged = now;
            deadline.at.as_mut().reset(Instant::now() + timeout);
        }
        // The kernel must not go on sending a response whose claims are undone, nor keep it in its memory.
        let _ = self.socket.set_zero_linger();
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its response"))
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
        let outcome = match Pin::new(&mut self.socket).poll_write(cx, bytes) {
            Poll::Ready(outcome) => {
                self.write_deadline = None;
                outcome
            }
            Poll::Pending => Err(ready!(self.poll_write_deadline(cx))),
        };
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(200);

    /// More than the kernel keeps for a client that reads nothing.
    const LARGE: usize = 16 * 1024 * 1024;

    /// Returns both ends of a connection, the client's first, with little room for what the client has not read.
    async fn connection(write_timeout: Duration) -> (TcpStream, ClientSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let server = listener.accept().await.unwrap().0;
        (client, ClientSocket::with_write_timeout(server, false, write_timeout))
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off_and_its_connection_is_reset() {
        let (mut client, mut server) = connection(TIMEOUT).await;
        let begun = Instant::now();
        let error = server.write_all(&vec![0; LARGE]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= TIMEOUT);
        drop(server);
        let read = client.read_to_end(&mut Vec::new()).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_deadline_begins_anew_if_the_client_has_acknowledged_bytes() {
        let (mut client, mut server) = connection(Duration::from_secs(3600)).await;
        // The kernel counts what was acknowledged once it has received something.
        client.write_all(b"x").await.unwrap();
        server.read_exact(&mut [0]).await.unwrap();
        server.write_all(b"a response").await.unwrap();
        client.read_exact(&mut [0; 10]).await.unwrap();
        while TcpInfo::of(&server.socket).unwrap().acknowledged < 10 {
            tokio::task::yield_now().await;
        }
        let over = |acknowledged| WriteDeadline { at: Box::pin(sleep(Duration::ZERO)), acknowledged };
        let mut poll = async |acknowledged| {
            server.write_deadline = Some(over(acknowledged));
            // The timer moves in ticks.
            sleep(Duration::from_millis(5)).await;
            let outcome = std::future::poll_fn(|cx| Poll::Ready(server.poll_write_deadline(cx))).await;
            (outcome.is_ready(), server.write_deadline.as_ref().unwrap().acknowledged)
        };
        assert_eq!(poll(Some(9)).await, (false, Some(10)));
        assert_eq!(poll(Some(10)).await, (true, Some(10)));
    }

    #[tokio::test]
    async fn a_deadline_ends_when_the_client_reads() {
        let (mut client, mut server) = connection(Duration::from_secs(3600)).await;
        let piece = vec![0; 64 * 1024];
        let mut sent = 0;
        while let Poll::Ready(written) = futures_util::poll!(Box::pin(server.write(&piece))) {
            sent += written.unwrap();
        }
        assert!(server.write_deadline.is_some());
        client.read_exact(&mut vec![0; sent]).await.unwrap();
        server.write_all(&piece[..1]).await.unwrap();
        assert!(server.write_deadline.is_none());
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_is_written_has_no_deadline() {
        let (mut client, mut server) = connection(Duration::ZERO).await;
        server.write_all(b"a response").await.unwrap();
        assert!(server.write_deadline.is_none());
        client.read_exact(&mut [0; 10]).await.unwrap();
        client.write_all(b"x").await.unwrap();
        server.read_exact(&mut [0]).await.unwrap();
        server.write_all(b"another").await.unwrap();
        assert!(server.write_deadline.is_none());
    }
}
