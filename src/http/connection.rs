//! A connection that hands on one request at a time.
//!
//! actix-http decodes every request that has arrived, and keeps what it needs to answer one (its
//! method, its version, whether the connection ends) in a place where the next one overwrites it.
//! Of a `GET` and a `HEAD` that arrive together, the first would be answered without its body,
//! and the end of the connection would be announced on the wrong response. So what follows a
//! request is held back until that request has been answered.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use actix_web::rt::net::TcpStream;
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_socket::ClientSocket;
use super::framing::Framing;
use super::sent_claims::SentClaims;

/// Bytes of later requests that are read while one is being answered. They are read at all so that
/// the end of the connection behind them is noticed.
const READ_AHEAD: usize = 64 * 1024;

/// Bytes that are read ahead at a time.
const PIECE: usize = 1024;

/// Whether the present request of a connection has been answered.
#[derive(Default)]
pub struct Turn {
    is_over: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// Ends the turn of a request when it is dropped.
pub struct Answering(Rc<Turn>);

impl Turn {
    /// The turn of the request that is being answered on this connection.
    pub fn of(request: &actix_web::dev::ServiceRequest) -> Option<Answering> {
        request.conn_data::<Rc<Turn>>().cloned().map(Answering)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.is_over.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

/// A client's connection.
pub struct Connection {
    socket: ClientSocket,
    framing: Framing,
    turn: Rc<Turn>,
    held: BytesMut,
}

impl Connection {
    /// Wraps a stream.
    pub fn new(stream: TcpStream) -> Self {
        Connection {
            socket: ClientSocket::new(stream),
            framing: Framing::default(),
            turn: Rc::default(),
            held: BytesMut::new(),
        }
    }

    /// The claims that are sent over it.
    pub fn claims(&self) -> Rc<SentClaims> {
        self.socket.claims()
    }

    /// The turns of its requests.
    pub fn turn(&self) -> Rc<Turn> {
        self.turn.clone()
    }

    /// Hands on bytes of the present request.
    fn poll_request(&mut self, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            let room = self.held.len().min(out.remaining());
            let count = self.framing.take(&self.held[..room]);
            out.put_slice(&self.held[..count]);
            self.held.advance(count);
            return Poll::Ready(Ok(()));
        }
        let start = out.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, out))?;
        let fresh = &out.filled()[start..];
        let count = self.framing.take(fresh);
        self.held.extend_from_slice(&fresh[count..]);
        out.set_filled(start + count);
        Poll::Ready(Ok(()))
    }

    /// Waits for the turn of the next request. Returns early if the connection ends.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let end = self.poll_end(context);
        // New bytes wake the reader by themselves; those that are held do not. A reader that is woken
        // for nothing would also hurry a body that waits for news from the socket.
        self.turn.waker.set((!self.held.is_empty()).then(|| context.waker().clone()));
        end
    }

    /// Reads ahead until the connection ends.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.len() < READ_AHEAD {
            let mut bytes = [0; PIECE];
            let mut piece = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut piece))?;
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
            if !this.turn.is_over.get() {
                return this.poll_turn(context);
            }
            this.turn.is_over.set(false);
            this.framing = Framing::default();
        }
        this.poll_request(context, out)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
