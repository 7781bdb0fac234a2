//! The bytes between us and PostgreSQL, as they go by.
//!
//! Two things are done here that no library in between does:
//! - Each error's message gets its SQLSTATE in front (see [`crate::store::connection::sqlstate`]). Only errors are
//!   touched; everything else is passed on as it was read, without being copied.
//! - It is counted how many answers are still to come ([`Activity`]). A caller that goes away
//!   leaves its statement running; such a connection must not be given to somebody else, whose
//!   statement would wait behind it.
//!
//! Both need only know where a message begins: a letter, the length of the rest in four bytes
//! (which count themselves), and the rest.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio_postgres::tls::{ChannelBinding, TlsStream};

use crate::store::connection::sqlstate::SqlState;

const ERROR: u8 = b'E';
const READY_FOR_QUERY: u8 = b'Z';
/// The messages that are answered with one `ReadyForQuery` each.
const QUERY: u8 = b'Q';
const SYNC: u8 = b'S';

/// A letter and a length.
const HEAD: usize = 5;

/// A connection that has carried a message of more bytes keeps buffers of that size.
const LARGE_MESSAGE: usize = 512 * 1024;

/// A connection that has carried a message of more bytes is not worth its buffers for a moment.
const HUGE_MESSAGE: usize = 4 * 1024 * 1024;

/// How many answers a connection is still waiting for, and whether it has carried anything large.
#[derive(Debug, Default)]
pub struct Activity {
    unanswered: AtomicUsize,
    answered: Notify,
    longest_message: AtomicUsize,
}

impl Activity {
    /// Returns whether the connection has carried a large message, and so keeps large buffers.
    pub fn has_carried_much(&self) -> bool {
        self.longest_message.load(Ordering::Relaxed) > LARGE_MESSAGE
    }

    /// Returns whether it has carried a huge one.
    pub fn has_carried_very_much(&self) -> bool {
        self.longest_message.load(Ordering::Relaxed) > HUGE_MESSAGE
    }

    fn note_size(&self, message: usize) {
        if message > LARGE_MESSAGE {
            self.longest_message.fetch_max(message, Ordering::Relaxed);
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) == 0
    }

    /// Waits until nothing is under way.
    pub async fn idle(&self) {
        loop {
            let answered = self.answered.notified();
            if self.is_idle() {
                return;
            }
            answered.await;
        }
    }

    fn ask(&self, questions: usize) {
        self.unanswered.fetch_add(questions, Ordering::AcqRel);
    }

    fn answer(&self) {
        // Never below zero: the first answer ends the start, which nobody asked for.
        let _ = self.unanswered.try_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        self.answered.notify_waiters();
    }
}

/// Where the messages of a stream begin.
#[derive(Debug, Default)]
struct Messages {
    head: BytesMut,
    rest: usize,
    /// The length of the longest so far.
    longest: usize,
}

impl Messages {
    /// Takes note of the next bytes; `begins` is told the letter of each message that begins in
    /// them and says whether to go on. Answers how many bytes were gone through.
    fn follow(&mut self, bytes: &[u8], mut begins: impl FnMut(u8) -> bool) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.rest > 0 {
                let step = self.rest.min(bytes.len() - at);
                self.rest -= step;
                at += step;
                continue;
            }
            if self.head.is_empty() && !begins(bytes[at]) {
                return at;
            }
            let step = (HEAD - self.head.len()).min(bytes.len() - at);
            self.head.put_slice(&bytes[at..at + step]);
            at += step;
            if self.head.len() == HEAD {
                self.rest = length_of(&self.head).saturating_sub(HEAD);
                self.longest = self.longest.max(self.rest);
                self.head.clear();
            }
        }
        at
    }
}

/// The length of the message that begins here, letter included; the head must be there.
fn length_of(message: &[u8]) -> usize {
    1 + u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize
}

/// A stream of PostgreSQL's protocol, after encryption.
#[derive(Debug)]
pub struct DatabaseStream<S> {
    inner: S,
    activity: Arc<Activity>,
    has_started: bool,
    sent: Messages,
    received: Messages,
    /// What was read from the beginning of an error on, until all of the error is there.
    held_back: BytesMut,
    /// What is to be passed on before anything else is read.
    ready: BytesMut,
}

impl<S> DatabaseStream<S> {
    /// Wraps a connection on which nothing has been said yet.
    pub fn new(inner: S, activity: Arc<Activity>) -> Self {
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

    /// Looks at what was just read. Answers how much of it can be passed on as it is; the rest is
    /// kept here.
    fn receive(&mut self, bytes: &[u8]) -> usize {
        let passed = if self.held_back.is_empty() {
            let (activity, has_started) = (&self.activity, &mut self.has_started);
            self.received.follow(bytes, |letter| {
                if letter == READY_FOR_QUERY {
                    note_answer(activity, has_started);
                }
                letter != ERROR
            })
        } else {
            0
        };
        self.activity.note_size(self.received.longest);
        self.held_back.put_slice(&bytes[passed..]);
        while self.held_back.len() >= HEAD && self.held_back.len() >= length_of(&self.held_back) {
            let length = length_of(&self.held_back);
            let message = self.held_back.split_to(length);
            match message[0] {
                ERROR => put_error(&mut self.ready, &message),
                letter => {
                    if letter == READY_FOR_QUERY {
                        note_answer(&self.activity, &mut self.has_started);
                    }
                    self.ready.put_slice(&message);
                }
            }
        }
        passed
    }
}

fn note_answer(activity: &Activity, has_started: &mut bool) {
    *has_started = true;
    activity.answer();
}

/// Writes an error with its SQLSTATE in front of the message. That of a PANIC stays as it is: the
/// database crashes, and whether it had committed before is not known.
fn put_error(out: &mut BytesMut, message: &[u8]) {
    let fields = || message[HEAD..].split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let field = |wanted: u8| fields().find(|(kind, _)| **kind == wanted).map(|(_, text)| text);
    let code = field(b'C').and_then(SqlState::parse).filter(|_| field(b'V') != Some(b"PANIC"));
    let mut body = BytesMut::with_capacity(message.len() + HEAD);
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
            let is_over = out.filled().len() == before;
            let passed = this.receive(&out.filled()[before..]);
            out.set_filled(before + passed);
            // To pass on nothing would mean that there is nothing more to come.
            if passed > 0 || is_over {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for DatabaseStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write(context, bytes))?;
        // The very first message has no letter; what belongs to the start is not counted.
        if this.has_started {
            let mut questions = 0;
            this.sent.follow(&bytes[..written], |letter| {
                questions += usize::from(letter == QUERY || letter == SYNC);
                true
            });
            this.activity.note_size(this.sent.longest);
            this.activity.ask(questions);
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
