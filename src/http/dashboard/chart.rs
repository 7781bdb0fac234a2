//! Line charts and sparklines, as SVG that the server renders. Each has its numbers as text, too.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::numbers::short;
use super::scale::{Scale, Unit};
use super::viewer::Viewer;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 6.0;
const BOTTOM: f64 = 26.0;
const TOP: f64 = 12.0;
/// A label of time needs this many points of the chart's width on both of its sides.
const HALF_LABEL: f64 = 32.0;

/// One line of a chart. A point without a value is a gap.
pub(super) struct Series {
    pub label: &'static str,
    /// The page that lists what the line is about.
    pub path: String,
    pub values: Vec<Option<f64>>,
}

/// A chart of values over time.
pub(super) struct Chart<'a> {
    pub title: &'a str,
    pub caption: &'a str,
    pub unit: Unit,
    pub times: &'a [DateTime<Utc>],
    /// The seconds between two times that are written below the chart, and how.
    pub label_seconds: i64,
    pub time_format: &'a str,
    pub series: Vec<Series>,
}

impl Chart<'_> {
    pub(super) fn render(&self, viewer: &Viewer) -> Markup {
        let scale = Scale::of(self.unit, self.series.iter().flat_map(|series| series.values.iter().flatten().copied()));
        html! {
            figure.chart {
                figcaption { strong { (self.title) } span.muted { " " (self.caption) } }
                (self.legend(viewer))
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.summary()) {
                    (self.grid(&scale))
                    @for (number, series) in self.series.iter().enumerate() {
                        path class=(format!("series s{}", number + 1)) d=(self.path(series, &scale)) {}
                        @for (x, y) in self.lone_points(series, &scale) {
                            circle class=(format!("dot s{}", number + 1)) cx=(x) cy=(y) r="3" {}
                        }
                    }
                    @for at in 0..self.times.len() { (self.hint(at)) }
                }
                (self.table())
            }
        }
    }

    fn legend(&self, viewer: &Viewer) -> Markup {
        html! {
            ul.legend {
                @for (number, series) in self.series.iter().enumerate() {
                    li {
                        svg.swatch viewBox="0 0 24 4" aria-hidden="true" {
                            path class=(format!("series s{}", number + 1)) d="M0 2H24" {}
                        }
                        a href=(viewer.link(&series.path)) { (series.label) " " (self.latest(series)) }
                    }
                }
            }
        }
    }

    fn grid(&self, scale: &Scale) -> Markup {
        html! {
            @for value in scale.lines() {
                line.grid x1=(LEFT) x2=(WIDTH) y1=(point(y(scale, value))) y2=(point(y(scale, value))) {}
                text.axis x=(LEFT - 8.0) y=(point(y(scale, value) + 4.0)) text-anchor="end" { (self.unit.text(value)) }
            }
            @for at in self.labelled_points() {
                line.tick x1=(point(self.x(at))) x2=(point(self.x(at))) y1=(HEIGHT - BOTTOM) y2=(HEIGHT - BOTTOM + 4.0) {}
                text.axis x=(point(self.x(at))) y=(HEIGHT - 6.0) text-anchor="middle" {
                    (self.times[at].format(self.time_format))
                }
            }
        }
    }

    /// Returns the text of the chart for those who do not see it.
    fn summary(&self) -> String {
        let mut text = format!("{} ({})", self.title, self.caption);
        for series in &self.series {
            let highest = series.values.iter().flatten().copied().fold(0.0, f64::max);
            let highest = self.unit.text(highest);
            let _ = write!(text, "; {}: latest {}, highest {highest}", series.label, self.latest(series));
        }
        text
    }

    fn latest(&self, series: &Series) -> String {
        series.values.iter().rev().flatten().next().map_or("–".to_owned(), |value| self.unit.text(*value))
    }

    fn value_at(&self, series: &Series, at: usize) -> String {
        series.values.get(at).copied().flatten().map_or("–".to_owned(), |value| self.unit.text(value))
    }

    fn x(&self, at: usize) -> f64 {
        let steps = self.times.len().saturating_sub(1).max(1) as f64;
        LEFT + at as f64 / steps * (WIDTH - LEFT - RIGHT)
    }

    /// Returns the points whose times are written: round ones, away from both ends.
    fn labelled_points(&self) -> impl Iterator<Item = usize> {
        let is_round = |at: &usize| self.times[*at].timestamp() % self.label_seconds.max(1) == 0;
        let fits = |at: &usize| (LEFT + HALF_LABEL..WIDTH - HALF_LABEL).contains(&self.x(*at));
        (0..self.times.len()).filter(is_round).filter(fits)
    }

    fn path(&self, series: &Series, scale: &Scale) -> String {
        let mut path = String::new();
        let mut is_drawing = false;
        for (at, value) in series.values.iter().enumerate() {
            let Some(value) = value else {
                is_drawing = false;
                continue;
            };
            let _ = write!(path, "{}{:.1} {:.1}", if is_drawing { 'L' } else { 'M' }, self.x(at), y(scale, *value));
            is_drawing = true;
        }
        path
    }

    /// Returns the points between two gaps, of which a path shows nothing.
    fn lone_points(&self, series: &Series, scale: &Scale) -> Vec<(String, String)> {
        let value_at = |at: Option<usize>| at.and_then(|at| series.values.get(at).copied().flatten());
        let is_lone = |at: usize| value_at(at.checked_sub(1)).is_none() && value_at(Some(at + 1)).is_none();
        let lone = series.values.iter().enumerate().filter(|(at, _)| is_lone(*at));
        lone.filter_map(|(at, value)| Some((point(self.x(at)), point(y(scale, (*value)?))))).collect()
    }

    /// Returns an invisible strip that shows the values of a point when the pointer is over it.
    fn hint(&self, at: usize) -> Markup {
        let width = (WIDTH - LEFT - RIGHT) / self.times.len().max(1) as f64;
        let mut text = self.times[at].format("%Y-%m-%d %H:%M UTC").to_string();
        for series in &self.series {
            let _ = write!(text, "\n{}: {}", series.label, self.value_at(series, at));
        }
        html! {
            rect.hint x=(point(self.x(at) - width / 2.0)) y="0" width=(point(width)) height=(HEIGHT - BOTTOM) { title { (text) } }
        }
    }

    /// Returns the numbers of the chart, the newest first.
    fn table(&self) -> Markup {
        html! {
            details {
                summary.small.muted { "The numbers" }
                div.table.numbers tabindex="0" role="region" aria-label=(format!("{}: the numbers", self.title)) {
                    table {
                        thead { tr { th scope="col" { "UTC" } @for series in &self.series { th.number scope="col" { (series.label) } } } }
                        tbody {
                            @for at in (0..self.times.len()).rev() {
                                tr {
                                    td.nowrap { (self.times[at].format("%d %b %H:%M")) }
                                    @for series in &self.series { td.number { (self.value_at(series, at)) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn y(scale: &Scale, value: f64) -> f64 {
    TOP + (1.0 - scale.height(value)) * (HEIGHT - BOTTOM - TOP)
}

/// Returns a coordinate.
fn point(value: f64) -> String {
    format!("{value:.1}")
}

const SPARK_WIDTH: f64 = 120.0;
const SPARK_HEIGHT: f64 = 24.0;

/// Returns a small chart without axes. `about` says what it shows.
pub(super) fn sparkline(values: &[Option<f64>], about: &str) -> Markup {
    let highest = values.iter().flatten().copied().fold(0.0, f64::max);
    let step = SPARK_WIDTH / values.len().saturating_sub(1).max(1) as f64;
    let mut path = String::new();
    for (at, value) in values.iter().enumerate() {
        let part = value.unwrap_or(0.0) / highest.max(f64::MIN_POSITIVE);
        let height = (1.0 - part) * (SPARK_HEIGHT - 3.0) + 1.5;
        let _ = write!(path, "{}{:.1} {height:.1}", if at == 0 { 'M' } else { 'L' }, at as f64 * step);
    }
    html! {
        svg.spark viewBox=(format!("0 0 {SPARK_WIDTH} {SPARK_HEIGHT}")) preserveAspectRatio="none" aria-hidden="true" {
            title { (about) ", at most " (short(highest)) }
            path d=(path) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[Option<f64>]) -> Series {
        Series { label: "p50", path: "/".into(), values: values.to_vec() }
    }

    fn chart(times: &[DateTime<Utc>]) -> Chart<'_> {
        Chart {
            title: "",
            caption: "",
            unit: Unit::PerMinute,
            times,
            label_seconds: 600,
            time_format: "%H",
            series: vec![],
        }
    }

    #[test]
    fn a_gap_is_not_drawn() {
        let times = vec![DateTime::UNIX_EPOCH; 4];
        let (chart, scale) = (chart(&times), Scale::of(Unit::PerMinute, [2.0].into_iter()));
        let path = chart.path(&series(&[Some(1.0), None, Some(2.0), Some(2.0)]), &scale);
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1));
    }

    #[test]
    fn a_point_between_gaps_is_a_dot() {
        let times = vec![DateTime::UNIX_EPOCH; 4];
        let (chart, scale) = (chart(&times), Scale::of(Unit::PerMinute, [2.0].into_iter()));
        let dots = |values: &[Option<f64>]| chart.lone_points(&series(values), &scale).len();
        assert_eq!(dots(&[Some(1.0), None, Some(2.0), Some(2.0)]), 1);
        assert_eq!(dots(&[None, Some(1.0), None, Some(2.0)]), 2);
        assert_eq!(dots(&[Some(1.0); 4]), 0);
        assert_eq!(dots(&[None; 4]), 0);
    }

    #[test]
    fn round_times_are_written() {
        let times: Vec<_> = (3..63).map(|minute| DateTime::UNIX_EPOCH + chrono::TimeDelta::minutes(minute)).collect();
        let chart = chart(&times);
        let labels = chart.labelled_points().map(|at| times[at].format("%M").to_string());
        assert_eq!(labels.collect::<Vec<_>>(), ["10", "20", "30", "40", "50"]);
    }

    #[test]
    fn a_sparkline_of_nothing_lies_on_the_ground() {
        let text = sparkline(&[Some(0.0), None], "nothing").into_string();
        assert!(text.contains("M0.0 22.5L120.0 22.5"), "{text}");
    }
}
