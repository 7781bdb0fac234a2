//! Stats: what was done in a minute or an hour, and how it is asked for.
//!
//! [`Counts`] is what a server has done with the events of a tag, or of a namespace, in a period. [`Metric`] is what can
//! be asked for, at the points of a [`window::StatsWindow`].

pub mod latency;
pub mod window;

use latency::Latencies;

/// A thing that is counted. Each is a column of the stats in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// An event was stored.
    Published,
    /// An event was handed to a worker.
    Claimed,
    /// A worker reported success.
    Completed,
    /// A worker reported a failure, or the server gave up an event as poison.
    Failed,
    /// A failure after which another attempt follows.
    Retried,
    /// A worker returned an event, or it was returned because the worker did not receive it.
    Released,
    /// A lease expired, or an operator took the event back.
    Reset,
    /// An event was not claimed before its `expires_at`.
    Expired,
    PushesSucceeded,
    PushesFailed,
    DeadLettered,
}

impl Counter {
    /// All counters, in the order of their columns.
    pub const ALL: [Counter; 11] = [
        Counter::Published,
        Counter::Claimed,
        Counter::Completed,
        Counter::Failed,
        Counter::Retried,
        Counter::Released,
        Counter::Reset,
        Counter::Expired,
        Counter::PushesSucceeded,
        Counter::PushesFailed,
        Counter::DeadLettered,
    ];

    /// Returns the name used in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Counter::Published => "published",
            Counter::Claimed => "claimed",
            Counter::Completed => "completed",
            Counter::Failed => "failed",
            Counter::Retried => "retried",
            Counter::Released => "released",
            Counter::Reset => "reset",
            Counter::Expired => "expired",
            Counter::PushesSucceeded => "pushes_succeeded",
            Counter::PushesFailed => "pushes_failed",
            Counter::DeadLettered => "dead_lettered",
        }
    }
}

/// What was done in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    counters: [i32; Counter::ALL.len()],
    /// The times from the publish of events to their completion.
    pub latencies: Latencies,
}

impl Counts {
    pub fn add(&mut self, counter: Counter) {
        let count = &mut self.counters[counter as usize];
        *count = count.saturating_add(1);
    }

    pub fn get(&self, counter: Counter) -> i32 {
        self.counters[counter as usize]
    }
}

/// What the history of stats can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    Count(Counter),
    /// Pushes that succeeded or failed.
    PushesSent,
    /// The time from publish to completion that this percentage of events did not exceed.
    Latency(u8),
}

impl Metric {
    /// All metrics, in the order of the API documentation.
    pub const ALL: [Metric; 14] = [
        Metric::Count(Counter::Published),
        Metric::Count(Counter::Claimed),
        Metric::Count(Counter::Completed),
        Metric::Count(Counter::Failed),
        Metric::Count(Counter::Retried),
        Metric::Count(Counter::Released),
        Metric::Count(Counter::Reset),
        Metric::Count(Counter::Expired),
        Metric::PushesSent,
        Metric::Count(Counter::PushesSucceeded),
        Metric::Count(Counter::PushesFailed),
        Metric::Count(Counter::DeadLettered),
        Metric::Latency(50),
        Metric::Latency(95),
    ];

    /// Returns the name used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Metric::Count(counter) => counter.as_str(),
            Metric::PushesSent => "pushes_sent",
            Metric::Latency(50) => "latency_p50_ms",
            Metric::Latency(_) => "latency_p95_ms",
        }
    }

    /// Parses names that are separated by commas, each once. The error is the reason for refusal.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let mut metrics = Vec::new();
        for name in text.split(',') {
            let known = Self::ALL.into_iter().find(|metric| metric.as_str() == name.trim());
            let metric = known.ok_or_else(|| {
                let all = Self::ALL.map(Self::as_str).join(", ");
                format!("must be one or more of {all}, separated by commas")
            })?;
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        Ok(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_metrics_has_each_once_and_in_the_given_order() {
        let read = Metric::parse_list("latency_p95_ms, published,published").unwrap();
        assert_eq!(read, [Metric::Latency(95), Metric::Count(Counter::Published)]);
        for wrong in ["", "published,", "sold", "Published"] {
            assert!(Metric::parse_list(wrong).unwrap_err().contains("one or more of published, claimed"), "{wrong}");
        }
    }

    #[test]
    fn every_name_is_read_as_its_metric() {
        for metric in Metric::ALL {
            assert_eq!(Metric::parse_list(metric.as_str()).unwrap(), [metric]);
        }
    }

    #[test]
    fn every_counter_counts_for_itself() {
        let mut counts = Counts::default();
        for (times, counter) in Counter::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| counts.add(counter));
        }
        let counted = Counter::ALL.map(|counter| counts.get(counter));
        assert_eq!(counted.to_vec(), (0..Counter::ALL.len() as i32).collect::<Vec<_>>());
    }
}
