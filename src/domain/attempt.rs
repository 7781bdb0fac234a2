//! How one call to a receiver ended.

use std::fmt;
use std::str::FromStr;

/// What came of a call: an answer, or a reason why there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver answered with this status.
    Status(u16),
    /// There was no answer to judge by.
    Error(ErrorKind),
}

/// What a call's outcome means for the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// Delivered.
    Success,
    /// Worth another call, if any are left.
    Retry,
    /// No other call will fare better.
    Terminal,
}

/// Why there was no answer. The words are stored and counted, so the list is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The time was up, whatever it was spent on.
    Timeout,
    /// The name could not be resolved.
    Dns,
    /// The name leads to an address that must not be called.
    AddressRefused,
    /// Nobody accepted the connection.
    Connect,
    /// The connection could not be secured.
    Tls,
    /// The connection was reset or closed half-way.
    Connection,
    /// What came back was not HTTP.
    InvalidResponse,
    /// There was nothing to send: the transform failed on this event.
    BodyNotRenderable,
}

impl ErrorKind {
    /// All of them, as the contract lists them.
    pub const ALL: [ErrorKind; 8] = [
        ErrorKind::Timeout,
        ErrorKind::Dns,
        ErrorKind::AddressRefused,
        ErrorKind::Connect,
        ErrorKind::Tls,
        ErrorKind::Connection,
        ErrorKind::InvalidResponse,
        ErrorKind::BodyNotRenderable,
    ];

    /// The word used in the database and on the wire.
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
        }
    }
}

impl FromStr for ErrorKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| format!("`{word}` is not a kind of error"))
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
    fn every_kind_is_found_by_its_word() {
        for kind in ErrorKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("gremlins".parse::<ErrorKind>().is_err());
    }
}
