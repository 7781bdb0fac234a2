//! Timestamps as clients send them, in RFC 3339.
//!
//! They are converted to UTC and truncated to microseconds, the precision of the database. A response
//! therefore never differs from a later read.

use chrono::{DateTime, Datelike, Utc};

/// Parses a timestamp. A leap second becomes the second after it.
pub(crate) fn parse(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text)
        .ok()
        .and_then(|time| DateTime::from_timestamp_micros(time.timestamp_micros()))
        // An offset can move the first or the last year out of the range that RFC 3339 can express.
        .filter(|time| (0..=9999).contains(&time.year()))
        .ok_or_else(|| "must be an RFC 3339 timestamp, such as 2026-01-31T09:30:00Z".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_kept_in_utc_and_to_the_microsecond() {
        let written = |text: &str| parse(text).map(|time| time.to_rfc3339()).unwrap_or_default();
        assert_eq!(written("2026-01-31T09:30:00.1234567+02:00"), "2026-01-31T07:30:00.123456+00:00");
        assert_eq!(written("1969-12-31T23:59:59.9999999Z"), "1969-12-31T23:59:59.999999+00:00");
        assert_eq!(written("2016-12-31T23:59:60Z"), "2017-01-01T00:00:00+00:00");
    }

    #[test]
    fn an_invalid_timestamp_is_refused() {
        let edges = ["0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"];
        for bad in ["", "now", "2026-01-31", "2026-01-31T09:30:00", "2026-02-30T00:00:00Z"].into_iter().chain(edges) {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
