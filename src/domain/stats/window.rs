//! The part of the history of stats that is asked for: evenly spaced points.

use std::ops::Range;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::retention::Retention;
use crate::domain::timestamp;

/// The maximum number of points in one response.
const MAX_POINTS: i64 = 2_000;

/// Days for which stats are kept by minute. Steps below an hour are made from these.
pub const MINUTE_DAYS: u64 = 7;

/// Days for which stats are kept by hour.
pub const HOUR_DAYS: u64 = 365;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The time between two points. All steps divide a day, so points lie at the same times every day (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    name: &'static str,
    seconds: i64,
}

impl Step {
    /// All steps, the shortest first.
    pub const ALL: [Step; 10] = [
        Step { name: "1m", seconds: MINUTE },
        Step { name: "5m", seconds: 5 * MINUTE },
        Step { name: "10m", seconds: 10 * MINUTE },
        Step { name: "15m", seconds: 15 * MINUTE },
        Step { name: "30m", seconds: 30 * MINUTE },
        Step { name: "1h", seconds: HOUR },
        Step { name: "3h", seconds: 3 * HOUR },
        Step { name: "6h", seconds: 6 * HOUR },
        Step { name: "12h", seconds: 12 * HOUR },
        Step { name: "1d", seconds: DAY },
    ];

    pub fn as_str(self) -> &'static str {
        self.name
    }

    /// Parses a name, or returns `None` if it is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name == name)
    }

    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns whether the points are made from hours, and not from minutes.
    pub fn is_by_hour(self) -> bool {
        self.seconds >= HOUR
    }

    /// Returns the step for a span that is given without one: minutes for some hours, ten minutes for a day, hours for a
    /// week or two, days for more.
    fn for_span(seconds: i64) -> Self {
        let name = match seconds {
            ..=21_600 => "1m",
            21_601..=172_800 => "10m",
            172_801..=1_209_600 => "1h",
            _ => "1d",
        };
        Self::parse(name).unwrap_or(Self::ALL[0])
    }
}

/// Evenly spaced points. Point n covers the step that begins n steps after the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsWindow {
    pub step: Step,
    /// The numbers of the points.
    pub points: Range<i64>,
}

impl StatsWindow {
    /// Returns the points that cover the time from `from` to `to`, but nothing after `now`. The error is the name of the
    /// parameter that is wrong, and the reason.
    pub fn new(
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        step: Option<Step>,
        now: DateTime<Utc>,
    ) -> Result<Self, (&'static str, String)> {
        let to = to.min(now);
        if from >= to {
            return Err(("from", "must lie in the past, and before `to`".into()));
        }
        if now - from > days(HOUR_DAYS) {
            return Err(("from", format!("must lie within the last {HOUR_DAYS} days: nothing older is kept")));
        }
        let step = step.unwrap_or_else(|| Step::for_span((to - from).num_seconds()));
        if !step.is_by_hour() && now - from > days(MINUTE_DAYS) {
            let reason = format!("must be at least 1h for what is older than {MINUTE_DAYS} days");
            return Err(("step", reason));
        }
        let first = from.timestamp().div_euclid(step.seconds);
        let last = (ceil_seconds(to) - 1).div_euclid(step.seconds);
        if last - first >= MAX_POINTS {
            return Err(("step", format!("must be longer: {} points are more than {MAX_POINTS}", last - first + 1)));
        }
        Ok(StatsWindow { step, points: first..last + 1 })
    }

    /// Returns the time at which a point begins.
    pub fn time_of(&self, point: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(point * self.step.seconds, 0).unwrap_or_default()
    }
}

fn ceil_seconds(time: DateTime<Utc>) -> i64 {
    time.timestamp() + i64::from(time.timestamp_subsec_nanos() > 0)
}

fn days(days: u64) -> TimeDelta {
    TimeDelta::seconds(days as i64 * DAY)
}

/// Parses a time: RFC 3339, or how long ago it was, such as `24h`. The error is the reason for refusal.
pub fn parse_time(text: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
    if let Ok(Retention::Seconds(seconds)) = text.parse() {
        return Ok(now - TimeDelta::seconds(seconds as i64));
    }
    timestamp::parse(text)
        .map_err(|_| "must be an RFC 3339 timestamp, or how long ago it was, such as 90s, 15m, 24h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        timestamp::parse(text).unwrap()
    }

    fn now() -> DateTime<Utc> {
        at("2026-03-09T08:15:02.5Z")
    }

    fn window(from: &str, step: &str) -> Result<(String, String, usize), (&'static str, String)> {
        let window = StatsWindow::new(parse_time(from, now()).unwrap(), now(), Step::parse(step), now())?;
        let time = |point| window.time_of(point).to_rfc3339();
        Ok((time(window.points.start), time(window.points.end), window.points.clone().count()))
    }

    #[test]
    fn points_are_aligned_and_cover_the_whole_time() {
        assert_eq!(
            window("1h", "1m").unwrap(),
            ("2026-03-09T07:15:00+00:00".into(), "2026-03-09T08:16:00+00:00".into(), 61)
        );
        assert_eq!(
            window("2026-03-09T06:00:00Z", "1h").unwrap(),
            ("2026-03-09T06:00:00+00:00".into(), "2026-03-09T09:00:00+00:00".into(), 3)
        );
        assert_eq!(
            window("7d", "1d").unwrap(),
            ("2026-03-02T00:00:00+00:00".into(), "2026-03-10T00:00:00+00:00".into(), 8)
        );
    }

    #[test]
    fn a_time_that_ends_with_a_point_does_not_begin_the_next() {
        let end = at("2026-03-09T08:00:00Z");
        let window = StatsWindow::new(at("2026-03-09T07:00:00Z"), end, Step::parse("30m"), now()).unwrap();
        assert_eq!(window.points.clone().count(), 2);
        assert_eq!(window.time_of(window.points.end), end);
    }

    #[test]
    fn without_a_step_there_are_some_hundred_points() {
        for (from, points) in [("1h", 61), ("6h", 361), ("1d", 145), ("7d", 169), ("14d", 337), ("365d", 366)] {
            assert_eq!(window(from, "").unwrap().2, points, "{from}");
        }
    }

    #[test]
    fn what_cannot_be_shown_is_refused_by_name() {
        let refused = |from: &str, step: &str| window(from, step).unwrap_err().0;
        assert_eq!(refused("2026-03-09T08:15:02.5Z", "1m"), "from");
        assert_eq!(refused("2026-03-10T00:00:00Z", "1m"), "from");
        assert_eq!(refused("366d", "1d"), "from");
        assert_eq!(refused("8d", "30m"), "step");
        assert_eq!(refused("2d", "1m"), "step");
        assert_eq!(refused("365d", "3h"), "step");
        assert!(window("33h", "1m").is_ok());
    }

    #[test]
    fn a_time_is_absolute_or_some_time_ago() {
        assert_eq!(parse_time("90s", now()), Ok(at("2026-03-09T08:13:32.5Z")));
        assert_eq!(parse_time("2026-03-09T09:00:00+01:00", now()), Ok(at("2026-03-09T08:00:00Z")));
        for wrong in ["", "yesterday", "forever", "0s", "24", "-1h"] {
            assert!(parse_time(wrong, now()).unwrap_err().contains("such as 90s"), "{wrong}");
        }
    }
}
