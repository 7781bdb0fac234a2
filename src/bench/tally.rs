//! What was measured.

use hdrhistogram::Histogram;

/// What was measured: how many, and how long each took, in microseconds.
pub struct Tally {
    /// Events that got through: published, or lived to their end.
    pub events: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// How long.
    pub latency: Histogram<u64>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Tally { events: 0, requests: 0, latency: new_histogram() }
    }

    /// Adds another connection's.
    pub fn add(&mut self, other: Tally) -> Result<(), String> {
        self.events += other.events;
        self.requests += other.requests;
        self.latency.add(&other.latency).map_err(|error| error.to_string())
    }
}

/// Microseconds, up to a minute, to three digits.
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("valid bounds")
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}
