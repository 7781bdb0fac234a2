//! Counters and latencies of a run.

use hdrhistogram::Histogram;

/// The measurements of a connection, or of the whole run.
pub(crate) struct Tally {
    /// Finished events: published or, depending on the workload, completed.
    pub events: u64,
    /// Requests sent.
    pub requests: u64,
    /// Latencies in microseconds.
    pub latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Tally { events: 0, requests: 0, latency: new_histogram() }
    }

    /// Adds the measurements of another connection.
    pub(crate) fn add(&mut self, other: Tally) -> Result<(), String> {
        self.events += other.events;
        self.requests += other.requests;
        self.latency.add(&other.latency).map_err(|error| error.to_string())
    }
}

/// Creates a histogram of microseconds up to one minute, with three significant digits.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("valid bounds")
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}
