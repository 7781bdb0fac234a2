//! Times as people say them: `3m ago`, `in 2h`.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

/// Returns a time of the server relative to now, or nothing if it is none.
pub(crate) fn relative(now: DateTime<Utc>, at: &Value) -> String {
    let Some(at) = parse(at) else { return String::new() };
    let ago = now - at;
    match ago < TimeDelta::zero() {
        // The clocks of two machines differ a little.
        true if -ago < TimeDelta::seconds(2) => "0s ago".to_owned(),
        true => format!("in {}", duration(-ago)),
        false => format!("{} ago", duration(ago)),
    }
}

pub(crate) fn parse(at: &Value) -> Option<DateTime<Utc>> {
    at.as_str().and_then(|at| DateTime::parse_from_rfc3339(at).ok()).map(|at| at.to_utc())
}

/// Returns a duration in its largest unit.
pub(crate) fn duration(duration: TimeDelta) -> String {
    let seconds = duration.num_seconds();
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns a number of seconds in its largest unit, or nothing if it is none.
pub(crate) fn seconds(seconds: &Value) -> String {
    seconds.as_f64().map(|seconds| duration(TimeDelta::milliseconds((seconds * 1000.0) as i64))).unwrap_or_default()
}

/// Returns milliseconds as a person would say them.
pub(crate) fn milliseconds(value: &Value) -> String {
    match value.as_f64() {
        None => String::new(),
        Some(ms) if ms < 1_000.0 => format!("{ms:.0} ms"),
        Some(ms) if ms < 60_000.0 => format!("{:.1} s", ms / 1_000.0),
        Some(ms) => duration(TimeDelta::milliseconds(ms as i64)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_told_in_their_largest_unit() {
        let now = "2026-03-09T12:00:00Z".parse().unwrap();
        let told = |at: &str| relative(now, &json!(at));
        assert_eq!(told("2026-03-09T11:59:18.5Z"), "41s ago");
        assert_eq!(told("2026-03-09T11:56:01Z"), "3m ago");
        assert_eq!(told("2026-03-09T14:30:00Z"), "in 2h");
        assert_eq!(told("2026-03-09T12:00:01Z"), "0s ago");
        assert_eq!(told("2026-02-01T12:00:00Z"), "36d ago");
        assert_eq!(relative(now, &json!(null)), "");
    }
}
