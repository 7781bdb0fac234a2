//! From the values of a chart to heights.

use super::numbers::{duration, short};

/// What the values of a chart are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Events per minute, on a linear scale.
    PerMinute,
    /// Milliseconds, on a logarithmic scale: latencies differ by powers of ten.
    Milliseconds,
}

impl Unit {
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Unit::PerMinute => short(value),
            Unit::Milliseconds => duration(value),
        }
    }
}

/// The number of parts into which lines divide a linear scale.
const LINEAR_PARTS: usize = 4;

/// The milliseconds at which a logarithmic scale may have lines: about one per power of ten, round in their unit.
const MARKS: &[f64] = &[
    1.0,
    10.0,
    100.0,
    1_000.0,
    10_000.0,
    60_000.0,
    600_000.0,
    3_600_000.0,
    36_000_000.0,
    864_000_000.0,
    8_640_000_000.0,
];

/// The range of values that a chart shows.
#[derive(Debug)]
pub(super) struct Scale {
    lowest: f64,
    highest: f64,
    unit: Unit,
}

impl Scale {
    /// Returns the scale that shows all of these values, between round numbers.
    pub(super) fn of(unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let (mut lowest, mut highest) = (f64::INFINITY, 0.0_f64);
        for value in values {
            lowest = lowest.min(value);
            highest = highest.max(value);
        }
        match unit {
            Unit::PerMinute => Scale { lowest: 0.0, highest: round_up(highest), unit },
            Unit::Milliseconds => {
                let first = MARKS.iter().rposition(|mark| *mark <= lowest.min(100.0)).unwrap_or(0);
                let last = MARKS.iter().position(|mark| *mark >= highest.max(1_000.0)).unwrap_or(MARKS.len() - 1);
                Scale { lowest: MARKS[first], highest: MARKS[last.max(first + 1)], unit }
            }
        }
    }

    /// Returns the height of a value: 0 at the bottom, 1 at the top.
    pub(super) fn height(&self, value: f64) -> f64 {
        let part = match self.unit {
            Unit::PerMinute => value / self.highest,
            Unit::Milliseconds => (value.max(self.lowest) / self.lowest).ln() / (self.highest / self.lowest).ln(),
        };
        part.clamp(0.0, 1.0)
    }

    /// Returns the values at which lines are drawn.
    pub(super) fn lines(&self) -> Vec<f64> {
        match self.unit {
            Unit::PerMinute => {
                (0..=LINEAR_PARTS).map(|line| self.highest * line as f64 / LINEAR_PARTS as f64).collect()
            }
            Unit::Milliseconds => {
                MARKS.iter().copied().filter(|mark| (self.lowest..=self.highest).contains(mark)).collect()
            }
        }
    }
}

/// Returns the next number of the kind 1, 2, 4 or 10 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 4.0, 10.0].into_iter().map(|factor| factor * power).find(|bound| *bound >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_line_is_a_round_number_above_all_values() {
        for (value, bound) in
            [(0.0, 1.0), (1.0, 1.0), (1.5, 2.0), (3.0, 4.0), (5.0, 10.0), (101.0, 200.0), (9_999.0, 10_000.0)]
        {
            assert_eq!(round_up(value), bound, "{value}");
        }
    }

    fn lines(values: &[f64]) -> Vec<String> {
        let scale = Scale::of(Unit::Milliseconds, values.iter().copied());
        assert!(values.iter().all(|value| (0.0..=1.0).contains(&scale.height(*value))));
        scale.lines().into_iter().map(|line| Unit::Milliseconds.text(line)).collect()
    }

    #[test]
    fn a_scale_of_latencies_has_lines_at_round_times() {
        assert_eq!(lines(&[]), ["100 ms", "1 s"]);
        assert_eq!(lines(&[0.3, 40.0]), ["1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!(lines(&[120.0, 31_000.0]), ["100 ms", "1 s", "10 s", "1 min"]);
        assert_eq!(lines(&[5_000.0, 7_200_000.0]), ["100 ms", "1 s", "10 s", "1 min", "10 min", "1 h", "10 h"]);
    }

    #[test]
    fn equal_distances_of_a_scale_of_latencies_are_equal_factors() {
        let scale = Scale::of(Unit::Milliseconds, [1.0, 10_000.0].into_iter());
        assert!((scale.height(100.0) - 0.5).abs() < 1e-9);
        assert_eq!((scale.height(0.0), scale.height(1e9)), (0.0, 1.0));
    }
}
