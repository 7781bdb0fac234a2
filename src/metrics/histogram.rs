//! Histograms that are counted with atomics alone.
//!
//! The histogram of the library takes a lock for every value, and every request would take some. Here a value costs two
//! additions. A scrape may see a value in one of them and not yet in the other, which the next scrape corrects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The sum is kept in millionths.
const PARTS: f64 = 1_000_000.0;

/// A histogram with fixed buckets. Clones share their counts.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// The upper bounds of the buckets, in ascending order. One more bucket has what exceeds them.
    bounds: &'static [f64],
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Counts { bounds, buckets, sum: AtomicU64::new(0) }))
    }

    pub fn observe(&self, value: f64) {
        let counts = &*self.0;
        let bucket = counts.bounds.iter().position(|bound| value <= *bound).unwrap_or(counts.bounds.len());
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.sum.fetch_add((value.max(0.0) * PARTS) as u64, Ordering::Relaxed);
    }

    /// Returns the number of observed values.
    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Counts { bounds, buckets, sum } = &*self.0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> =
            bounds.zip(buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum.load(Ordering::Relaxed) as f64 / PARTS, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn values_are_counted_in_the_first_bucket_that_holds_them_and_in_all_later_ones() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for value in [0.05, 0.1, 0.5, 30.0] {
            histogram.observe(value);
        }
        let mut registry = Registry::default();
        registry.register("wait_seconds", "A wait", histogram.clone());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "wait_seconds_sum 30.65",
                "wait_seconds_count 4",
                "wait_seconds_bucket{le=\"0.1\"} 2",
                "wait_seconds_bucket{le=\"1.0\"} 3",
                "wait_seconds_bucket{le=\"+Inf\"} 4"
            ]
        );
        assert_eq!(histogram.count(), 4);
    }
}
