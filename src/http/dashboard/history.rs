//! What was done lately, for charts and sparklines: rates per minute and latencies.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use super::chart::{Chart, Series};
use super::numbers::short;
use super::parts::filtered;
use super::scale::Unit;
use super::viewer::Viewer;
use crate::domain::stats::Metric;
use crate::domain::stats::window::StatsWindow;
use crate::error::Error;
use crate::http::stats::{PointValue, read_series};

/// A time that the charts can show.
pub(super) struct ChartSpan {
    /// Its name in the address, and in the filter line of events.
    pub name: &'static str,
    pub hours: i64,
    /// The seconds between two times that are written below the charts, and how.
    label_seconds: i64,
    time_format: &'static str,
}

pub(super) const SPANS: [ChartSpan; 3] = [
    ChartSpan { name: "1h", hours: 1, label_seconds: 600, time_format: "%H:%M" },
    ChartSpan { name: "24h", hours: 24, label_seconds: 4 * 3_600, time_format: "%H:%M" },
    ChartSpan { name: "7d", hours: 168, label_seconds: 86_400, time_format: "%d %b" },
];

/// The lines of the chart of rates: the metric, its label, and the words of the filter line for what it is about.
const RATES: &[(&str, &str, &str)] = &[
    ("published", "published", ""),
    ("completed", "completed", "status:COMPLETED"),
    ("failed", "failed", "status:FAILED"),
    ("claimed", "claimed", "status:PROCESSING"),
];

const METRICS: &str =
    "published,claimed,completed,failed,pushes_sent,pushes_succeeded,pushes_failed,latency_p50_ms,latency_p95_ms";

/// What was done at evenly spaced points.
pub(super) struct History {
    times: Vec<DateTime<Utc>>,
    step_minutes: f64,
    /// Counts per minute and latencies in milliseconds, by metric.
    values: BTreeMap<&'static str, Vec<Option<f64>>>,
    /// Counts of the whole time, by metric.
    totals: BTreeMap<&'static str, i64>,
}

impl History {
    pub(super) async fn read(viewer: &Viewer, hours: i64) -> Result<Self, Error> {
        let now = viewer.engine.time();
        let window = StatsWindow::new(now - TimeDelta::hours(hours), now, None, now)
            .map_err(|(_, reason)| Error::Internal(reason))?;
        let metrics = Metric::parse_list(METRICS).map_err(Error::Internal)?;
        let read = read_series(&viewer.engine, &viewer.scope, "", &metrics, &window).await?;
        let times: Vec<_> = window.points.clone().map(|point| window.time_of(point)).collect();
        Ok(Self::of(times, window.step.seconds() as f64 / 60.0, &read, now))
    }

    /// Returns the history of points, of which the last is not over yet. As an average of its whole step it would pull
    /// every line to the ground, so its average is that of the time that has passed. Of less than a minute there is none.
    fn of(
        mut times: Vec<DateTime<Utc>>,
        step_minutes: f64,
        read: &BTreeMap<&'static str, Vec<PointValue>>,
        now: DateTime<Utc>,
    ) -> Self {
        let passed = times.last().map_or(0.0, |last| (now - *last).as_seconds_f64() / 60.0).min(step_minutes);
        let is_too_short = passed < step_minutes && passed < 1.0;
        if is_too_short {
            times.pop();
        }
        let last = times.len().saturating_sub(1);
        let minutes = |at: usize| if at == last && !is_too_short { passed } else { step_minutes };
        let value = |(at, value): (usize, &PointValue)| match value {
            PointValue::Count(count) => Some(*count as f64 / minutes(at)),
            PointValue::Milliseconds(milliseconds) => *milliseconds,
        };
        let count = |value: &PointValue| if let PointValue::Count(count) = value { *count } else { 0 };
        let values = read
            .iter()
            .map(|(metric, points)| (*metric, points.iter().take(times.len()).enumerate().map(value).collect()));
        let totals = read.iter().map(|(metric, points)| (*metric, points.iter().map(count).sum()));
        History { values: values.collect(), totals: totals.collect(), times, step_minutes }
    }

    pub(super) fn values(&self, metric: &str) -> &[Option<f64>] {
        self.values.get(metric).map_or(&[], Vec::as_slice)
    }

    /// Returns how often something was done in the whole time, the present minute included.
    pub(super) fn total(&self, metric: &str) -> i64 {
        self.totals.get(metric).copied().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.totals.values().all(|total| *total == 0)
    }

    pub(super) fn charts(&self, viewer: &Viewer, span: &ChartSpan) -> Markup {
        let throughput = Chart {
            title: "Throughput",
            caption: &format!("events per minute, by {} min, UTC", short(self.step_minutes)),
            unit: Unit::PerMinute,
            times: &self.times,
            label_seconds: span.label_seconds,
            time_format: span.time_format,
            series: self.rates(span),
        };
        let latency = Chart {
            title: "Latency",
            caption: "published to completed, logarithmic, UTC",
            unit: Unit::Milliseconds,
            times: &self.times,
            label_seconds: span.label_seconds,
            time_format: span.time_format,
            series: self.latencies(span),
        };
        html! { (throughput.render(viewer)) (latency.render(viewer)) }
    }

    fn rates(&self, span: &ChartSpan) -> Vec<Series> {
        let line = |(metric, label, words): &(&str, &'static str, &str)| Series {
            label,
            path: filtered(format!("{words} since:{}", span.name).trim()),
            values: self.values(metric).to_vec(),
        };
        let pushed =
            Series { label: "pushed", path: "/ui/deliveries".into(), values: self.values("pushes_sent").to_vec() };
        RATES.iter().map(line).chain([pushed]).collect()
    }

    fn latencies(&self, span: &ChartSpan) -> Vec<Series> {
        let path = filtered(&format!("status:COMPLETED since:{}", span.name));
        [("latency_p50_ms", "p50"), ("latency_p95_ms", "p95")]
            .map(|(metric, label)| Series { label, path: path.clone(), values: self.values(metric).to_vec() })
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(step_minutes: i64, counts: &[i64], seconds_into_last: i64) -> History {
        let at = |number: i64| DateTime::UNIX_EPOCH + TimeDelta::minutes(number * step_minutes);
        let times: Vec<_> = (0..counts.len() as i64).map(at).collect();
        let now = times[times.len() - 1] + TimeDelta::seconds(seconds_into_last);
        let points = counts.iter().map(|count| PointValue::Count(*count)).collect();
        History::of(times, step_minutes as f64, &BTreeMap::from([("published", points)]), now)
    }

    #[test]
    fn the_present_minute_is_left_out_of_lines_and_counted_in_totals() {
        let history = history(1, &[6, 4, 1], 20);
        assert_eq!(history.values("published"), [Some(6.0), Some(4.0)]);
        assert_eq!((history.times.len(), history.total("published")), (2, 11));
    }

    #[test]
    fn a_longer_step_that_is_not_over_is_an_average_of_what_has_passed() {
        assert_eq!(history(10, &[60, 60, 12], 120).values("published"), [Some(6.0), Some(6.0), Some(6.0)]);
        assert_eq!(history(10, &[60, 60, 1], 30).values("published"), [Some(6.0), Some(6.0)]);
    }

    #[test]
    fn a_minute_that_is_over_is_shown() {
        assert_eq!(history(1, &[6, 4], 60).values("published"), [Some(6.0), Some(4.0)]);
    }
}
