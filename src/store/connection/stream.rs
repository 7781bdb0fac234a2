//! A stream between the driver and the socket that follows PostgreSQL's protocol.
//!
//! It does two things that no library does:
//! - It writes the SQLSTATE of each error in front of the error's message (see
//!   [`crate::store::connection::sqlstate`]). Only errors are changed. All other bytes are passed on
//!   unchanged and are not copied.
//! - It counts the responses that are still to come ([`Activity`]). A caller that is cancelled leaves
//!   its statement running. Its connection must not be handed to another caller, whose statement
//!   would wait behind it.
//!   It also knows whether the connection is within a transaction, which the driver does not if `BEGIN` or `COMMIT`
//!   themselves have failed.
//!
//! For this it is enough to know where a message begins. A message consists of a type byte, a length
//! of four bytes (which includes these four bytes), and the body.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio_postgres::tls::{ChannelBinding, TlsStream};

use crate::store::connection::sqlstate::SqlState;

const ERROR: u8 = b'E';
/// Its body is the state of the transaction.
const READY_FOR_QUERY: u8 = b'Z';
const NO_TRANSACTION: u8 = b'I';
/// `Query` and `Sync` are the requests for which the database responds with one `ReadyForQuery` each.
const QUERY: u8 = b'Q';
const SYNC: u8 = b'S';

/// The bytes of a message's type and length.
const HEADER_BYTES: usize = 5;

/// The number of bytes above which a message is large: the connection then keeps large buffers, and is
/// closed when it is idle.
const LARGE_MESSAGE: usize = 512 * 1024;

/// The number of bytes above which a message is huge: the connection is closed at once.
const HUGE_MESSAGE: usize = 4 * 1024 * 1024;

/// The number of responses that a connection waits for, and the size of its longest message.
#[derive(Debug, Default)]
pub struct Activity {
    pending_responses: AtomicUsize,
    response_arrived: Notify,
    longest_message: AtomicUsize,
    is_in_transaction: AtomicBool,
}

impl Activity {
    /// Returns whether the connection was within a transaction, perhaps an aborted one, at its last response.
    pub fn is_in_transaction(&self) -> bool {
        self.is_in_transaction.load(Ordering::Acquire)
    }

    /// Returns whether the connection has carried a large message, and so keeps large buffers.
    pub fn has_large_buffers(&self) -> bool {
        self.longest_message.load(Ordering::Relaxed) > LARGE_MESSAGE
    }

    /// Returns whether the connection has carried a huge message, and so keeps huge buffers.
    pub fn has_huge_buffers(&self) -> bool {
        self.longest_message.load(Ordering::Relaxed) > HUGE_MESSAGE
    }

    fn record_size(&self, message: usize) {
        if message > LARGE_MESSAGE {
            self.longest_message.fetch_max(message, Ordering::Relaxed);
        }
    }

    /// Returns whether no response is pending.
    pub fn is_idle(&self) -> bool {
        self.pending_responses.load(Ordering::Acquire) == 0
    }

    /// Waits until no response is pending.
    pub async fn idle(&self) {
        loop {
            let response_arrived = self.response_arrived.notified();
            if self.is_idle() {
                return;
            }
            response_arrived.await;
        }
    }

    fn record_requests(&self, count: usize) {
        self.pending_responses.fetch_add(count, Ordering::AcqRel);
    }

    fn record_response(&self, transaction: u8) {
        self.is_in_transaction.store(transaction != NO_TRANSACTION, Ordering::Release);
        // Never below zero: the first `ReadyForQuery` ends the startup and belongs to no counted request.
        let _ = self.pending_responses.try_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        self.response_arrived.notify_waiters();
    }
}

/// Finds the beginnings of messages in a stream.
#[derive(Debug, Default)]
struct Messages {
    /// The part of the current header that has been seen.
    header: BytesMut,
    /// The type of the current message.
    kind: u8,
    /// The bytes of the current body that are still to come.
    remaining_body: usize,
    /// The length of the longest body so far.
    longest: usize,
}

impl Messages {
    /// Scans the next bytes of the stream. Calls `on_message` with the type of each message that begins
    /// in them, and stops if it returns false. Calls `on_ready` with the state in each `ReadyForQuery`. Returns the number of
    /// bytes that were scanned.
    fn scan(&mut self, bytes: &[u8], mut on_message: impl FnMut(u8) -> bool, mut on_ready: impl FnMut(u8)) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.remaining_body > 0 {
                if self.kind == READY_FOR_QUERY {
                    on_ready(bytes[at]);
                }
                let step = self.remaining_body.min(bytes.len() - at);
                self.remaining_body -= step;
                at += step;
                continue;
            }
            if self.header.is_empty() {
                if !on_message(bytes[at]) {
                    return at;
                }
                self.kind = bytes[at];
            }
            let step = (HEADER_BYTES - self.header.len()).min(bytes.len() - at);
            self.header.put_slice(&bytes[at..at + step]);
            at += step;
            if self.header.len() == HEADER_BYTES {
                self.remaining_body = length_of(&self.header).saturating_sub(HEADER_BYTES);
                self.longest = self.longest.max(self.remaining_body);
                self.header.clear();
            }
        }
        at
    }
}

/// Returns the length of a message, including its type byte. `message` must contain the whole header.
fn length_of(message: &[u8]) -> usize {
    1 + u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize
}

/// A stream of PostgreSQL's protocol, unencrypted.
#[derive(Debug)]
pub(crate) struct DatabaseStream<S> {
    inner: S,
    activity: Arc<Activity>,
    has_started: bool,
    sent: Messages,
    received: Messages,
    /// The bytes from the beginning of an error on, until the error is complete.
    held_back: BytesMut,
    /// Bytes to pass on before anything else is read.
    ready: BytesMut,
}

impl<S> DatabaseStream<S> {
    /// Wraps a connection on which nothing has been sent yet.
    pub(crate) fn new(inner: S, activity: Arc<Activity>) -> Self {
        DatabaseStream {
            inner,
            activity,
            has_started: false,
            sent: Messages::default(),
            received: Messages::default(),
            held_back: BytesMut::new(),
            ready: BytesMut::new(),
        }
    }

    /// Processes bytes that were just read. Returns how many of them can be passed on unchanged. The
    /// others are kept in `held_back` or `ready`.
    fn receive(&mut self, bytes: &[u8]) -> usize {
        let passed = if self.held_back.is_empty() {
            let (activity, has_started) = (&self.activity, &mut self.has_started);
            let on_ready = |transaction| record_response(activity, has_started, transaction);
            self.received.scan(bytes, |kind| kind != ERROR, on_ready)
        } else {
            0
        };
        self.activity.record_size(self.received.longest);
        self.held_back.put_slice(&bytes[passed..]);
        while self.held_back.len() >= HEADER_BYTES && self.held_back.len() >= length_of(&self.held_back) {
            let length = length_of(&self.held_back);
            let message = self.held_back.split_to(length);
            match message[0] {
                ERROR => put_error(&mut self.ready, &message),
                kind => {
                    if kind == READY_FOR_QUERY {
                        record_response(&self.activity, &mut self.has_started, message[HEADER_BYTES]);
                    }
                    self.ready.put_slice(&message);
                }
            }
        }
        passed
    }
}

fn record_response(activity: &Activity, has_started: &mut bool, transaction: u8) {
    *has_started = true;
    activity.record_response(transaction);
}

/// Writes an error with its SQLSTATE in front of the message. The message of a PANIC gets no code: the
/// database crashes, and it is unknown whether it committed before.
fn put_error(out: &mut BytesMut, message: &[u8]) {
    let fields = || message[HEADER_BYTES..].split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let field = |wanted: u8| fields().find(|(kind, _)| **kind == wanted).map(|(_, text)| text);
    let code = field(b'C').and_then(SqlState::parse).filter(|_| field(b'V') != Some(b"PANIC"));
    let mut body = BytesMut::with_capacity(message.len() + HEADER_BYTES);
    for (kind, text) in fields() {
        body.put_u8(*kind);
        if *kind == b'M' {
            body.extend(code.into_iter().flat_map(SqlState::prefix));
        }
        body.put_slice(text);
        body.put_u8(0);
    }
    body.put_u8(0);
    out.put_u8(ERROR);
    out.put_u32(body.len() as u32 + 4);
    out.put_slice(&body);
}

impl<S: AsyncRead + Unpin> AsyncRead for DatabaseStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.ready.is_empty() {
                let length = this.ready.len().min(out.remaining());
                out.put_slice(&this.ready[..length]);
                this.ready.advance(length);
                return Poll::Ready(Ok(()));
            }
            let before = out.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(context, out))?;
            let is_end = out.filled().len() == before;
            let passed = this.receive(&out.filled()[before..]);
            out.set_filled(before + passed);
            // A read of 0 bytes would mean the end of the stream, so read on.
            if passed > 0 || is_end {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for DatabaseStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write(context, bytes))?;
        // The startup message has no type byte. Messages of the startup are not counted.
        if this.has_started {
            let mut requests = 0;
            let on_message = |kind| {
                requests += usize::from(kind == QUERY || kind == SYNC);
                true
            };
            this.sent.scan(&bytes[..written], on_message, |_| {});
            this.activity.record_size(this.sent.longest);
            this.activity.record_requests(requests);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

impl<S: TlsStream + Unpin> TlsStream for DatabaseStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.inner.channel_binding()
    }
}

#[cfg(test)]
mod tests;
