//! The failures after which a request is retried.

use std::fmt;

use serde_json::Value;

use crate::domain::attempt::{AttemptOutcome, AttemptVerdict, ErrorKind};
use crate::domain::invalid::Invalid;
use crate::domain::limits;

/// The failures after which a request is retried. Regardless of the list, a 2xx is a success, and
/// 410 is terminal because it means that the receiver is permanently gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOn(Vec<Cause>);

/// One item of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// `"503"`
    Status(u16),
    /// `"5xx"`
    Class(u16),
    /// `"500-504"`, both ends included
    Range(u16, u16),
    /// `"timeout"`
    Timeout,
    /// `"connection"`
    Connection,
}

const GONE: u16 = 410;

impl Default for RetryOn {
    fn default() -> Self {
        let statuses = [408, 425, 429].map(Cause::Status);
        let others = [Cause::Class(5), Cause::Timeout, Cause::Connection];
        Self(statuses.into_iter().chain(others).collect())
    }
}

impl RetryOn {
    /// Parses the list. The field named in an error is relative to the list. An empty list means that
    /// nothing is retried.
    pub fn parse(value: &Value) -> Result<Self, Invalid> {
        let Value::Array(items) = value else { return Err(Invalid::new("", "must be a list")) };
        if items.len() > limits::RETRY_ON {
            return Err(Invalid::new("", format!("must be at most {} items", limits::RETRY_ON)));
        }
        let read = |(index, item): (usize, &Value)| {
            item.as_str().and_then(Cause::parse).ok_or_else(|| {
                let expected = "must be a status such as \"503\", a class such as \"5xx\", a range such as \"500-504\", \
                                \"timeout\" or \"connection\"";
                Invalid::new(format!("[{index}]"), expected)
            })
        };
        items.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the list as it was parsed.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(Cause::to_string).collect()
    }

    /// Returns what an outcome means for the delivery.
    pub fn judge(&self, outcome: &AttemptOutcome) -> AttemptVerdict {
        match *outcome {
            AttemptOutcome::Status(200..=299) => AttemptVerdict::Success,
            AttemptOutcome::Status(GONE) | AttemptOutcome::Error(ErrorKind::BodyNotRenderable) => {
                AttemptVerdict::Terminal
            }
            // The receiver has no part in it, so its list does not decide: an operator may bring the key back.
            AttemptOutcome::Error(ErrorKind::SecretUnreadable) => AttemptVerdict::Retry,
            _ if self.0.iter().any(|cause| cause.covers(outcome)) => AttemptVerdict::Retry,
            _ => AttemptVerdict::Terminal,
        }
    }
}

impl Cause {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "timeout" => Some(Self::Timeout),
            "connection" => Some(Self::Connection),
            _ => {
                let status = parse_status(text).map(Self::Status);
                status.or_else(|| Self::parse_class(text)).or_else(|| Self::parse_range(text))
            }
        }
    }

    fn parse_class(text: &str) -> Option<Self> {
        match text.strip_suffix("xx")?.as_bytes() {
            [digit @ b'1'..=b'5'] => Some(Self::Class(u16::from(digit - b'0'))),
            _ => None,
        }
    }

    fn parse_range(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (parse_status(first)?, parse_status(last)?);
        (first <= last).then_some(Self::Range(first, last))
    }

    fn covers(&self, outcome: &AttemptOutcome) -> bool {
        match (*self, *outcome) {
            (Self::Status(wanted), AttemptOutcome::Status(status)) => status == wanted,
            (Self::Class(class), AttemptOutcome::Status(status)) => status / 100 == class,
            (Self::Range(first, last), AttemptOutcome::Status(status)) => (first..=last).contains(&status),
            (Self::Timeout, AttemptOutcome::Error(kind)) => kind == ErrorKind::Timeout,
            (Self::Connection, AttemptOutcome::Error(kind)) => is_connection_error(kind),
            _ => false,
        }
    }
}

/// Returns whether an error counts as `"connection"`. A refused address does, because the host name
/// may resolve to another address next time. So does a response that is not HTTP, because a receiver
/// may send one while it restarts.
fn is_connection_error(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Dns
        | ErrorKind::AddressRefused
        | ErrorKind::Connect
        | ErrorKind::Tls
        | ErrorKind::Connection
        | ErrorKind::InvalidResponse => true,
        ErrorKind::Timeout | ErrorKind::BodyNotRenderable | ErrorKind::SecretUnreadable => false,
    }
}

fn parse_status(text: &str) -> Option<u16> {
    let is_plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|status| is_plain && (100..=599).contains(status))
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(out, "{status}"),
            Self::Class(class) => write!(out, "{class}xx"),
            Self::Range(first, last) => write!(out, "{first}-{last}"),
            Self::Timeout => out.write_str("timeout"),
            Self::Connection => out.write_str("connection"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn status(retry_on: &RetryOn, status: u16) -> AttemptVerdict {
        retry_on.judge(&AttemptOutcome::Status(status))
    }

    fn error(retry_on: &RetryOn, kind: ErrorKind) -> AttemptVerdict {
        retry_on.judge(&AttemptOutcome::Error(kind))
    }

    #[test]
    fn by_default_only_temporary_failures_are_retried() {
        let default = RetryOn::default();
        assert_eq!(default.to_json(), json!(["408", "425", "429", "5xx", "timeout", "connection"]));
        for temporary in [408, 425, 429, 500, 503, 599] {
            assert_eq!(status(&default, temporary), AttemptVerdict::Retry, "{temporary}");
        }
        for permanent in [101, 301, 304, 400, 401, 404, 410, 422, 600] {
            assert_eq!(status(&default, permanent), AttemptVerdict::Terminal, "{permanent}");
        }
        for kind in ErrorKind::ALL {
            let expected =
                if kind == ErrorKind::BodyNotRenderable { AttemptVerdict::Terminal } else { AttemptVerdict::Retry };
            assert_eq!(error(&default, kind), expected, "{kind}");
        }
    }

    #[test]
    fn statuses_classes_and_ranges_are_retried() {
        let retry_on = RetryOn::parse(&json!(["404", "3xx", "500-504"])).unwrap();
        for listed in [404, 300, 399, 500, 502, 504] {
            assert_eq!(status(&retry_on, listed), AttemptVerdict::Retry, "{listed}");
        }
        for other in [403, 400, 499, 505] {
            assert_eq!(status(&retry_on, other), AttemptVerdict::Terminal, "{other}");
        }
        assert_eq!(error(&retry_on, ErrorKind::Timeout), AttemptVerdict::Terminal);
        assert_eq!(error(&retry_on, ErrorKind::Dns), AttemptVerdict::Terminal);
    }

    #[test]
    fn no_list_makes_2xx_a_failure_or_410_retryable() {
        let all = RetryOn::parse(&json!(["100-599"])).unwrap();
        assert_eq!(status(&all, 200), AttemptVerdict::Success);
        assert_eq!(status(&all, 299), AttemptVerdict::Success);
        assert_eq!(status(&all, 410), AttemptVerdict::Terminal);
        assert_eq!(status(&RetryOn::parse(&json!([])).unwrap(), 503), AttemptVerdict::Terminal);
    }

    #[test]
    fn an_invalid_item_is_refused_with_its_index() {
        for bad in [
            json!(503),
            json!("99"),
            json!("600"),
            json!("-1"),
            json!("0503"),
            json!("+50"),
            json!("500.5"),
            json!("6xx"),
            json!("0xx"),
            json!("xx"),
            json!("5XX"),
            json!("504-500"),
            json!("500-"),
            json!("+50-504"),
            json!("dns"),
            json!(null),
            json!([500]),
        ] {
            let refused = RetryOn::parse(&json!(["5xx", bad])).unwrap_err();
            assert_eq!(refused.field, "[1]", "{bad}");
        }
        assert!(RetryOn::parse(&json!("5xx")).is_err());
        assert!(RetryOn::parse(&json!(vec!["500"; 101])).is_err());
    }

    proptest! {
        #[test]
        fn a_list_survives_serialisation(
            items in prop::collection::vec(
                prop_oneof![
                    (100u16..600).prop_map(|status| Value::from(status.to_string())),
                    (1u16..6).prop_map(|class| Value::from(format!("{class}xx"))),
                    (100u16..600, 100u16..600)
                        .prop_map(|(a, b)| Value::from(format!("{}-{}", a.min(b), a.max(b)))),
                    Just(Value::from("timeout")),
                    Just(Value::from("connection")),
                ],
                0..20,
            ),
        ) {
            let value = Value::from(items);
            prop_assert_eq!(RetryOn::parse(&value).unwrap().to_json(), value);
        }
    }
}
