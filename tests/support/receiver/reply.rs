//! The ways to answer, good and bad.

use super::gate::Gate;

/// One answer. Starts as a status; what follows makes it richer, slower or broken.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) manner: Manner,
    pub(super) gate: Option<Gate>,
}

/// How an answer is given.
#[derive(Debug, Clone)]
pub(super) enum Manner {
    /// As HTTP wants it.
    Whole,
    /// The headers promise more than the body holds; the rest comes after the gate, if ever.
    BodyHeldBy(Gate),
    /// The body repeats itself for as long as the connection stands.
    Endless,
    /// The connection is reset instead of an answer.
    Reset,
    /// The connection is reset where the body should come.
    ResetAfterHeaders,
    /// The connection is closed instead of an answer.
    Close,
    /// The connection is closed where the body should come.
    CloseAfterHeaders,
    /// The body alone is sent, as if it were an answer.
    Raw,
}

impl Reply {
    /// 200 without a body.
    pub fn ok() -> Self {
        Self::status(200)
    }

    /// A status without a body.
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), manner: Manner::Whole, gate: None }
    }

    /// 410: the receiver wants no more.
    pub fn gone() -> Self {
        Self::status(410)
    }

    /// 429 with this `Retry-After`: seconds, or a date.
    pub fn too_many_requests(retry_after: &str) -> Self {
        Self::status(429).header("retry-after", retry_after)
    }

    /// 302 to another place.
    pub fn redirect_to(url: &str) -> Self {
        Self::status(302).header("location", url)
    }

    /// No answer, ever; the connection stays open until the sender has had enough.
    pub fn never() -> Self {
        Self::ok().held_by(&Gate::closed())
    }

    /// A reset instead of an answer.
    pub fn reset() -> Self {
        Self::ok().in_manner(Manner::Reset)
    }

    /// A closed connection instead of an answer.
    pub fn close() -> Self {
        Self::ok().in_manner(Manner::Close)
    }

    /// These bytes and then the end, whether they are HTTP or not.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::ok().body(bytes).in_manner(Manner::Raw)
    }

    /// Something that is not HTTP.
    pub fn garbage() -> Self {
        Self::raw("\u{1}\u{2} this is not the protocol you are looking for\r\n\r\n")
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends nothing before the gate opens.
    #[must_use]
    pub fn held_by(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Sends the headers and the body, but not the body's last byte before the gate opens.
    #[must_use]
    pub fn body_held_by(self, gate: &Gate) -> Self {
        self.in_manner(Manner::BodyHeldBy(gate.clone()))
    }

    /// Sends the headers and the body, but never the body's last byte.
    #[must_use]
    pub fn body_never_ends(self) -> Self {
        self.body_held_by(&Gate::closed())
    }

    /// Sends a body for as long as the sender listens.
    #[must_use]
    pub fn endless(self) -> Self {
        self.in_manner(Manner::Endless)
    }

    /// Sends the headers, and then resets the connection.
    #[must_use]
    pub fn reset_after_headers(self) -> Self {
        self.in_manner(Manner::ResetAfterHeaders)
    }

    /// Sends the headers, and then closes the connection.
    #[must_use]
    pub fn close_after_headers(self) -> Self {
        self.in_manner(Manner::CloseAfterHeaders)
    }

    fn in_manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }

    /// Status line and headers, with a body of so many bytes to follow; `None`: in chunks.
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
