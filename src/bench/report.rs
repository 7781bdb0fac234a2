//! The result of a run, as a table for people or as JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::intervals::IntervalReport;
use super::tally::Tally;
use crate::config::BenchArgs;

/// The result of one run. Times are in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub workload: String,
    pub connections: usize,
    pub seconds: f64,
    pub events: u64,
    pub events_per_second: f64,
    pub requests: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<IntervalReport>,
}

impl Report {
    pub(crate) fn new(args: &BenchArgs, tally: &Tally, elapsed: Duration, intervals: Vec<IntervalReport>) -> Self {
        let at = |quantile: f64| tally.latency.value_at_quantile(quantile) as f64 / 1000.0;
        Report {
            workload: args.workload.to_string(),
            connections: args.connections,
            seconds: elapsed.as_secs_f64(),
            events: tally.events,
            events_per_second: tally.events as f64 / elapsed.as_secs_f64(),
            requests: tally.requests,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: tally.latency.max() as f64 / 1000.0,
            intervals,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "workload      {} ({} connections, {:.1} s)", self.workload, self.connections, self.seconds)?;
        writeln!(out, "events        {} ({:.0} /s)", self.events, self.events_per_second)?;
        writeln!(out, "requests      {}", self.requests)?;
        writeln!(out, "latency (ms)     p50      p90      p99    p99.9      max")?;
        write!(
            out,
            "             {:7.2}  {:7.2}  {:7.2}  {:7.2}  {:7.2}",
            self.p50_ms, self.p90_ms, self.p99_ms, self.p999_ms, self.max_ms
        )?;
        if !self.intervals.is_empty() {
            write!(out, "\nfrom second     events /s      p50      p99      max")?;
        }
        for interval in &self.intervals {
            write!(
                out,
                "\n{:11.0}  {:12.0}  {:7.2}  {:7.2}  {:7.2}",
                interval.from_second, interval.events_per_second, interval.p50_ms, interval.p99_ms, interval.max_ms
            )?;
        }
        Ok(())
    }
}
