//! What is sent, and what comes back.

use std::time::Duration;

use bytes::Bytes;

use crate::domain::attempt::ErrorKind;

/// Everything that is to be sent.
#[derive(Debug, Clone)]
pub struct WebhookRequest {
    /// `POST` and the like.
    pub method: String,
    /// Where to; checked again before it is used.
    pub url: String,
    /// In this order. Those that frame the message are ours, and must not be among them.
    pub headers: Vec<(String, String)>,
    /// Sent as it is.
    pub body: Bytes,
    /// For all of it: look-up, connection, TLS, headers and body. An hour at most.
    pub timeout: Duration,
}

/// One request and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// From the call to its outcome.
    pub duration: Duration,
    /// What the receiver said, or why it said nothing.
    pub result: Result<Answer, SendError>,
}

/// What a receiver said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Any status; redirects, too, are handed out as they came.
    pub status: u16,
    /// The header of this name, as it came: seconds, or a date, or nonsense of that length.
    pub retry_after: Option<String>,
    /// The beginning of the body, as text that can be stored.
    pub excerpt: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    /// For programs.
    pub kind: ErrorKind,
    /// For operators: short, one line, and nothing of what the receiver sent.
    pub detail: String,
}

impl Answer {
    /// Whether the receiver says that it has taken what was sent.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Characters of a [`SendError::detail`].
const DETAIL_CHARS: usize = 300;

impl SendError {
    /// An error of this kind; the detail is cut to size.
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
