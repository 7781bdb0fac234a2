//! Responses of a receiver, good and broken.

use super::gate::Gate;

/// One response. It starts as a status; the builder methods add content, delays or faults.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) manner: Manner,
    pub(super) gate: Option<Gate>,
}

/// How a response is sent.
#[derive(Debug, Clone)]
pub(super) enum Manner {
    /// A complete HTTP response.
    Whole,
    /// The headers announce one byte more than is sent; it follows when the gate opens.
    BodyHeldBy(Gate),
    /// The body repeats until the connection ends.
    Endless,
    /// The connection is reset before any response.
    Reset,
    /// The connection is reset after the headers.
    ResetAfterHeaders,
    /// The connection is closed before any response.
    Close,
    /// The connection is closed after the headers.
    CloseAfterHeaders,
    /// Only the bytes of the body are sent, without status line and headers.
    Raw,
}

impl Reply {
    /// 200 without a body.
    pub(crate) fn ok() -> Self {
        Self::status(200)
    }

    /// A status without a body.
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), manner: Manner::Whole, gate: None }
    }

    /// 410: the receiver wants no more requests.
    pub(crate) fn gone() -> Self {
        Self::status(410)
    }

    /// 429 with this `Retry-After`, in seconds or as a date.
    pub(crate) fn too_many_requests(retry_after: &str) -> Self {
        Self::status(429).header("retry-after", retry_after)
    }

    /// 302 to another URL.
    pub(crate) fn redirect_to(url: &str) -> Self {
        Self::status(302).header("location", url)
    }

    /// No response: the connection stays open until the sender hangs up.
    pub(crate) fn never() -> Self {
        Self::ok().held_by(&Gate::closed())
    }

    /// A connection reset instead of a response.
    pub(crate) fn reset() -> Self {
        Self::ok().in_manner(Manner::Reset)
    }

    /// A closed connection instead of a response.
    pub(crate) fn close() -> Self {
        Self::ok().in_manner(Manner::Close)
    }

    /// Sends these bytes and closes the connection, whether they are HTTP or not.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::ok().body(bytes).in_manner(Manner::Raw)
    }

    /// Bytes that are not HTTP.
    pub(crate) fn garbage() -> Self {
        Self::raw("\u{1}\u{2} this is not the protocol you are looking for\r\n\r\n")
    }

    #[must_use]
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends nothing before the gate opens.
    #[must_use]
    pub(crate) fn held_by(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Sends the headers and the body, but holds the last byte of the body until the gate opens.
    #[must_use]
    pub(crate) fn body_held_by(self, gate: &Gate) -> Self {
        self.in_manner(Manner::BodyHeldBy(gate.clone()))
    }

    /// Sends the headers and the body, but never the last byte of the body.
    #[must_use]
    pub(crate) fn body_never_ends(self) -> Self {
        self.body_held_by(&Gate::closed())
    }

    /// Sends a body without end.
    #[must_use]
    pub(crate) fn endless(self) -> Self {
        self.in_manner(Manner::Endless)
    }

    /// Sends the headers, then resets the connection.
    #[must_use]
    pub(crate) fn reset_after_headers(self) -> Self {
        self.in_manner(Manner::ResetAfterHeaders)
    }

    /// Sends the headers, then closes the connection.
    #[must_use]
    pub(crate) fn close_after_headers(self) -> Self {
        self.in_manner(Manner::CloseAfterHeaders)
    }

    fn in_manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }

    /// Returns the status line and headers for a body of `body_bytes` bytes, or for a chunked body
    /// if `None`.
    pub(super) fn head(&self, body_bytes: Option<usize>) -> String {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match body_bytes {
            None => head.push_str("transfer-encoding: chunked\r\n\r\n"),
            Some(_) if matches!(self.status, 204 | 304) => head.push_str("\r\n"),
            Some(bytes) => head.push_str(&format!("content-length: {bytes}\r\n\r\n")),
        }
        head
    }
}
