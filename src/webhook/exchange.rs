//! Requests, responses and errors of webhooks.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::domain::address::masked;
use crate::domain::attempt::ErrorKind;

/// A complete request to a receiver. Its `Debug` output does not reveal its headers and its body.
#[derive(Clone)]
pub struct WebhookRequest {
    /// The HTTP method, such as `POST`.
    pub method: String,
    /// The target URL. It is checked again before the request is sent.
    pub url: String,
    /// Headers in the order they are sent. Framing headers, such as `content-length`, are not allowed here.
    pub headers: Vec<(String, String)>,
    /// The body, sent unchanged.
    pub body: Bytes,
    /// The time for name resolution, connection, TLS, headers and body together. At most an hour.
    pub timeout: Duration,
    /// Texts that are replaced in the excerpt of the response, should the receiver repeat them. Texts shorter than
    /// [`REDACTED_CHARS`](super::REDACTED_CHARS) are not.
    pub redacted: Vec<String>,
}

impl fmt::Debug for WebhookRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.method, masked(&self.url))
    }
}

/// The outcome of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The time from the call to its outcome.
    pub duration: Duration,
    /// The response, or the reason why there is none.
    pub result: Result<WebhookResponse, SendError>,
}

/// The response of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookResponse {
    /// Any status. Redirects are not followed, so they appear here as well.
    pub status: u16,
    /// The raw `Retry-After` header: seconds, a date, or any invalid text of limited length.
    pub retry_after: Option<String>,
    /// The beginning of the body, as text that PostgreSQL can store.
    pub excerpt: String,
}

/// The reason why there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    pub kind: ErrorKind,
    /// A short line for operators. It contains nothing that the receiver sent.
    pub detail: String,
}

impl Exchange {
    /// Returns the outcome of a request that was not sent.
    pub(crate) fn not_sent(kind: ErrorKind, detail: &str) -> Self {
        Self { duration: Duration::ZERO, result: Err(SendError::new(kind, detail)) }
    }
}

impl WebhookResponse {
    /// Whether the receiver accepted the request (2xx).
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The longest [`SendError::detail`], in characters.
const DETAIL_CHARS: usize = 300;

impl SendError {
    /// Creates an error. The detail is truncated, and control characters become spaces.
    pub(super) fn new(kind: ErrorKind, detail: &str) -> Self {
        let one_line = detail.chars().map(|c| if c.is_control() { ' ' } else { c });
        Self { kind, detail: one_line.take(DETAIL_CHARS).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_one_short_line() {
        let error = SendError::new(ErrorKind::Tls, &format!("a\r\nb\0{}", "ü".repeat(400)));
        assert!(error.detail.starts_with("a  b ü"));
        assert_eq!(error.detail.chars().count(), DETAIL_CHARS);
    }
}
