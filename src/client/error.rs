//! What can go wrong with a request.

use std::time::Duration;

use serde::Deserialize;

/// Why a request has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The client cannot be set up, or the request cannot be written.
    #[error("{0}")]
    Settings(String),
    /// The server did not answer. If the request was sent, nobody knows whether it took effect.
    #[error("{url} does not answer: {cause}")]
    Unreachable { url: String, cause: String, was_sent: bool },
    #[error("{0}")]
    Refused(Box<Problem>),
    #[error("the response cannot be read: {0}")]
    Unreadable(String),
}

impl ClientError {
    /// Returns whether the same request may be sent again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(problem) => problem.retryable,
            Self::Settings(_) | Self::Unreadable(_) => false,
        }
    }

    /// Returns whether the server refuses this request for good. Of a request that has the same effect if it is sent
    /// twice, all others may be sent again: a fault of the server, or of a proxy, may pass.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Settings(_) => true,
            Self::Refused(problem) => !problem.retryable && (400..500).contains(&problem.status),
            Self::Unreachable { .. } | Self::Unreadable(_) => false,
        }
    }

    /// Returns whether the request certainly had no effect.
    pub fn had_no_effect(&self) -> bool {
        match self {
            Self::Settings(_) => true,
            Self::Unreachable { was_sent, .. } => !was_sent,
            Self::Refused(problem) => problem.effect == "none",
            Self::Unreadable(_) => false,
        }
    }

    /// Returns the problem, if the server has answered with one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            _ => None,
        }
    }
}

/// A refusal of the server, as RFC 9457 has it.
#[derive(Debug, Clone, Default, thiserror::Error)]
#[error("{title}: {detail} ({status})")]
pub struct Problem {
    pub status: u16,
    /// The stable word of the kind of problem, such as `lease_lost`.
    pub code: String,
    pub title: String,
    pub detail: String,
    /// Whether the same request may be sent again.
    pub retryable: bool,
    /// What the request has changed: `none`, `recorded` or `unknown`.
    pub effect: String,
    /// The time to wait before another request, if the server names one.
    pub retry_after: Option<Duration>,
    /// The fields of the request that are invalid.
    pub errors: Vec<FieldError>,
}

/// An invalid field of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FieldError {
    /// The path of the field, such as `title` or `events[7].payload`.
    pub field: String,
    /// The reason, as the end of a sentence that starts with the field.
    pub reason: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    code: String,
    title: String,
    detail: String,
    retryable: Option<bool>,
    effect: String,
    errors: Vec<FieldError>,
}

impl Problem {
    /// Reads a response. A proxy in between may have sent something else than a problem.
    pub(super) fn read(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let body: Body = serde_json::from_slice(body).unwrap_or_default();
        let title = if body.title.is_empty() { "the server refused the request".to_owned() } else { body.title };
        let retryable = body.retryable.unwrap_or(status >= 500 || status == 429);
        let Body { code, detail, effect, errors, .. } = body;
        Problem { status, code, title, detail, retryable, effect, retry_after, errors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_whether_the_request_may_be_sent_again() {
        let body =
            br#"{"code": "lease_lost", "title": "Lease lost", "detail": "x", "retryable": false, "effect": "none"}"#;
        let problem = Problem::read(409, None, body);
        assert_eq!((problem.code.as_str(), problem.retryable), ("lease_lost", false));
        assert_eq!(problem.to_string(), "Lease lost: x (409)");
    }

    #[test]
    fn what_a_proxy_answers_is_a_problem_too() {
        assert!(Problem::read(502, None, b"<html>").retryable);
        assert!(!Problem::read(404, None, b"").retryable);
    }
}
