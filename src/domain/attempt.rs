//! The outcome of one webhook request.

use std::fmt;
use std::str::FromStr;

/// The outcome of a webhook request: a response, or the reason why there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver responded with this status.
    Status(u16),
    /// There was no valid response.
    Error(ErrorKind),
}

/// What the outcome of a request means for the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// The event was delivered.
    Success,
    /// The request is retried if attempts are left.
    Retry,
    /// The failure is permanent; the request is not retried.
    Terminal,
}

/// The reason why there was no response. The names are stored and part of the API, so the set is
/// fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The request timed out, in whatever phase.
    Timeout,
    /// The host name could not be resolved.
    Dns,
    /// The host name resolves to an address that must not be used.
    AddressRefused,
    /// The connection could not be established.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection was reset or closed before the response was complete.
    Connection,
    /// The response was not valid HTTP.
    InvalidResponse,
    /// The body could not be rendered: the transform failed for this event.
    BodyNotRenderable,
    /// A header value could not be decrypted: this server lacks its key, or the value was damaged.
    SecretUnreadable,
}

impl ErrorKind {
    /// All kinds, in the order of the API documentation.
    pub const ALL: [ErrorKind; 9] = [
        ErrorKind::Timeout,
        ErrorKind::Dns,
        ErrorKind::AddressRefused,
        ErrorKind::Connect,
        ErrorKind::Tls,
        ErrorKind::Connection,
        ErrorKind::InvalidResponse,
        ErrorKind::BodyNotRenderable,
        ErrorKind::SecretUnreadable,
    ];

    /// Returns the name used in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Timeout => "timeout",
            ErrorKind::Dns => "dns",
            ErrorKind::AddressRefused => "address_refused",
            ErrorKind::Connect => "connect",
            ErrorKind::Tls => "tls",
            ErrorKind::Connection => "connection",
            ErrorKind::InvalidResponse => "invalid_response",
            ErrorKind::BodyNotRenderable => "body_not_renderable",
            ErrorKind::SecretUnreadable => "secret_unreadable",
        }
    }
}

impl FromStr for ErrorKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        known.ok_or_else(|| format!("`{name}` is not a kind of error"))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_parsed_from_its_name() {
        for kind in ErrorKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("gremlins".parse::<ErrorKind>().is_err());
    }
}
