//! A connection that passes one request at a time to actix-http.
//!
//! actix-http decodes every request that has arrived (HTTP pipelining). It keeps the method, the
//! version and whether to close the connection in one field each, and the next request overwrites
//! them. If a `GET` and a `HEAD` arrived together, the response to the `GET` would have no body, and
//! `Connection: close` would be on the wrong response. A [`Connection`] therefore holds back the
//! bytes that follow a request until there is a response to it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_stream::ClientStream;
use super::framing::Framing;
use super::sent_claims::SentClaims;

/// The maximum number of bytes of later requests that are read before the response to the current
/// one. They are read in order to notice the end of the connection.
const READ_AHEAD: usize = 64 * 1024;

/// The number of bytes that are read ahead at a time.
const PIECE: usize = 1024;

/// Whether there is a response to the current request of a connection.
#[derive(Default)]
pub(crate) struct RequestState {
    is_answered: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// Marks the current request as answered when it is dropped.
pub(crate) struct RequestGuard(Rc<RequestState>);

impl RequestState {
    /// Returns the guard of a request that is being handled.
    pub(crate) fn guard(request: &actix_web::dev::ServiceRequest) -> Option<RequestGuard> {
        request.conn_data::<Rc<RequestState>>().cloned().map(RequestGuard)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.is_answered.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

/// A client's connection.
pub(crate) struct Connection {
    stream: ClientStream,
    framing: Framing,
    request_state: Rc<RequestState>,
    /// Bytes that were read and not yet passed on.
    held: BytesMut,
}

impl Connection {
    pub(crate) fn new(stream: ClientStream) -> Self {
        Connection { stream, framing: Framing::default(), request_state: Rc::default(), held: BytesMut::new() }
    }

    /// Returns the claims that are sent over this connection.
    pub(crate) fn claims(&self) -> Rc<SentClaims> {
        self.stream.claims()
    }

    pub(crate) fn request_state(&self) -> Rc<RequestState> {
        self.request_state.clone()
    }

    /// Passes on bytes of the current request.
    fn poll_request(&mut self, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            let available = self.held.len().min(out.remaining());
            let count = self.framing.take(&self.held[..available]);
            out.put_slice(&self.held[..count]);
            self.held.advance(count);
            return Poll::Ready(Ok(()));
        }
        let start = out.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, out))?;
        let received = &out.filled()[start..];
        let count = self.framing.take(received);
        self.held.extend_from_slice(&received[count..]);
        out.set_filled(start + count);
        Poll::Ready(Ok(()))
    }

    /// Waits until the next request may be passed on. Returns early if the connection ends.
    fn poll_next_request(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let end = self.poll_end(context);
        // New bytes from the socket wake the reader, but held bytes do not. Without held bytes no waker
        // is set: a needless wake-up would also poll a response body that waits for the socket.
        self.request_state.waker.set((!self.held.is_empty()).then(|| context.waker().clone()));
        end
    }

    /// Reads ahead until the connection ends.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.len() < READ_AHEAD {
            let mut bytes = [0; PIECE];
            let mut piece = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.held.extend_from_slice(piece.filled());
        }
        Poll::Pending
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.framing.is_at_end() {
            if !this.request_state.is_answered.get() {
                return this.poll_next_request(context);
            }
            this.request_state.is_answered.set(false);
            this.framing = Framing::default();
        }
        this.poll_request(context, out)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
