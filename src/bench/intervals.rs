//! The results of each interval of a run. They make a slow decline visible.
//!
//! All connections share one set behind a lock: a histogram per connection and interval would need more
//! memory than the server under test.

use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tally::new_histogram;

/// The intervals of a run, filled while it runs.
pub(crate) struct Intervals {
    length: Duration,
    run: Duration,
    slices: Mutex<Vec<Slice>>,
}

struct Slice {
    events: u64,
    latency: Histogram<u64>,
}

/// One interval of the report. Times are in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct IntervalReport {
    pub from_second: f64,
    pub events: u64,
    pub events_per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Intervals {
    /// Creates intervals of `length` for a run of the duration `run`; the last one may be shorter.
    pub(crate) fn new(length: Duration, run: Duration) -> Self {
        let count = run.as_nanos().div_ceil(length.as_nanos().max(1));
        let slices = (0..count).map(|_| Slice { events: 0, latency: new_histogram() }).collect();
        Intervals { length, run, slices: Mutex::new(slices) }
    }

    /// Records events that finished at the time `at` since the start of the run, with the latency `took`.
    ///
    /// Events that finish after the end of the run count in the last interval.
    pub(crate) fn record(&self, at: Duration, took: Duration, events: u64) {
        let mut slices = self.slices.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let number = (at.as_nanos() / self.length.as_nanos().max(1)) as usize;
        let last = slices.len().saturating_sub(1);
        if let Some(slice) = slices.get_mut(number.min(last)) {
            slice.events += events;
            slice.latency.saturating_record(took.as_micros() as u64);
        }
    }

    pub(crate) fn report(&self) -> Vec<IntervalReport> {
        let slices = self.slices.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let one = |(number, slice): (usize, &Slice)| {
            let from = self.length * number as u32;
            let seconds = self.length.min(self.run.saturating_sub(from)).as_secs_f64();
            let at = |quantile: f64| slice.latency.value_at_quantile(quantile) as f64 / 1000.0;
            IntervalReport {
                from_second: from.as_secs_f64(),
                events: slice.events,
                events_per_second: slice.events as f64 / seconds,
                p50_ms: at(0.5),
                p99_ms: at(0.99),
                max_ms: slice.latency.max() as f64 / 1000.0,
            }
        };
        slices.iter().enumerate().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_in_the_interval_in_which_they_finished() {
        let intervals = Intervals::new(Duration::from_secs(2), Duration::from_secs(5));
        let took = Duration::from_millis(3);
        intervals.record(Duration::from_millis(1_999), took, 1);
        intervals.record(Duration::from_millis(2_000), took, 10);
        intervals.record(Duration::from_millis(5_100), took, 4);

        let report = intervals.report();

        assert_eq!(report.iter().map(|interval| interval.events).collect::<Vec<_>>(), [1, 10, 4]);
        assert_eq!(report.iter().map(|interval| interval.from_second).collect::<Vec<_>>(), [0.0, 2.0, 4.0]);
        // The last one is a second long: 5 = 2 + 2 + 1.
        let rates: Vec<_> = report.iter().map(|interval| interval.events_per_second).collect();
        assert_eq!(rates, [0.5, 5.0, 4.0]);
        assert!((report[0].p99_ms - 3.0).abs() < 0.01, "{report:?}");
    }
}
