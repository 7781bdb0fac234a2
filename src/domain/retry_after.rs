//! Parsing of the `Retry-After` header.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

use super::limits;

/// Returns the number of seconds from `now` that a header value means, which is a number of seconds
/// or a date. The result is between 0 and [`limits::RETRY_AFTER_SECONDS`], or `None` if the value is
/// invalid.
pub(crate) fn parse(value: &str, now: DateTime<Utc>) -> Option<f64> {
    let value = value.trim_matches([' ', '\t']);
    let seconds = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Any number of digits: a number too large for a float becomes infinite, and is capped below.
        value.parse().ok()?
    } else {
        seconds_until(httpdate::parse_http_date(value).ok()?, now)
    };
    Some(f64::min(seconds, limits::RETRY_AFTER_SECONDS))
}

fn seconds_until(date: SystemTime, now: DateTime<Utc>) -> f64 {
    date.duration_since(now.into()).unwrap_or(Duration::ZERO).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(value: &str) -> Option<f64> {
        parse(value, "1994-11-06T08:49:30Z".parse().unwrap())
    }

    #[test]
    fn seconds_are_capped() {
        assert_eq!(seconds("120"), Some(120.0));
        assert_eq!(seconds(" 0 "), Some(0.0));
        assert_eq!(seconds("86401"), Some(86_400.0));
        assert_eq!(seconds(&"9".repeat(1000)), Some(86_400.0));
    }

    #[test]
    fn a_date_is_relative_to_now_in_all_three_formats() {
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(seconds(date), Some(7.0), "{date}");
        }
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0.0));
        assert_eq!(seconds("Sun, 06 Nov 2094 08:00:00 GMT"), None);
        assert_eq!(seconds("Sat, 06 Nov 2094 08:00:00 GMT"), Some(86_400.0));
    }

    #[test]
    fn an_invalid_value_is_ignored() {
        for value in ["", " ", "-1", "+1", "1.5", "1e3", "NaN", "inf", "infinity", "soon", "12 s", "١٢"] {
            assert_eq!(seconds(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn the_wait_is_bounded_for_any_value(value in "\\PC{0,40}") {
            if let Some(wait) = seconds(&value) {
                prop_assert!((0.0..=limits::RETRY_AFTER_SECONDS).contains(&wait));
            }
        }
    }
}
