//! Latencies as counts in buckets whose bounds grow by the same factor, from which percentiles are estimated.
//!
//! There are four buckets per doubling. A percentile is reported as the middle of its bucket, so it differs from the
//! exact one by a factor of 2^(1/8) at most: by less than 10 %. That holds from 1 ms to 41 days; what is shorter or
//! longer counts as that. Buckets of several periods, tags or servers are added up, which percentiles could not be.

use std::collections::BTreeMap;

/// The number of buckets in which a latency doubles.
const PER_DOUBLING: f64 = 4.0;

/// The last bucket, which has everything above 35 days.
const LAST_BUCKET: i16 = 127;

/// How many latencies there are in each bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: BTreeMap<i16, i32>,
}

impl Latencies {
    /// Counts a latency in milliseconds.
    pub fn observe(&mut self, milliseconds: f64) {
        let count = self.counts.entry(bucket_of(milliseconds)).or_default();
        *count = count.saturating_add(1);
    }

    /// Returns the buckets that are not empty, and how many latencies each has.
    pub fn counts(&self) -> impl Iterator<Item = (i16, i32)> {
        self.counts.iter().map(|(bucket, count)| (*bucket, *count))
    }
}

/// Returns the bucket of a latency. Bucket 0 has up to 1 ms, bucket n what is above bucket n - 1 and up to 2^(n/4) ms.
fn bucket_of(milliseconds: f64) -> i16 {
    if milliseconds <= 1.0 {
        return 0;
    }
    // Casts of floats saturate.
    ((milliseconds.log2() * PER_DOUBLING).ceil() as i16).clamp(1, LAST_BUCKET)
}

/// Returns the latency in milliseconds that stands for all of a bucket: its geometric middle.
fn middle_of(bucket: i16) -> f64 {
    if bucket == 0 { 1.0 } else { ((f64::from(bucket) - 0.5) / PER_DOUBLING).exp2() }
}

/// Returns the latency in milliseconds that `percent` of all latencies do not exceed, or `None` if there are none.
/// `counts` has the buckets in ascending order.
pub fn percentile(counts: &BTreeMap<i16, i64>, percent: u8) -> Option<f64> {
    let total: i64 = counts.values().sum();
    let rank = (total * i64::from(percent) + 99) / 100;
    let mut before = 0;
    counts.iter().find_map(|(bucket, count)| {
        before += count;
        (before >= rank.max(1)).then(|| middle_of(*bucket))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn estimate(latencies: &[f64], percent: u8) -> Option<f64> {
        let mut counted = Latencies::default();
        latencies.iter().for_each(|milliseconds| counted.observe(*milliseconds));
        let counts = counted.counts().map(|(bucket, count)| (bucket, i64::from(count))).collect();
        percentile(&counts, percent)
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(estimate(&[], 50), None);
    }

    #[test]
    fn the_shortest_and_the_longest_latencies_have_buckets() {
        assert_eq!((bucket_of(-5.0), bucket_of(0.0), bucket_of(1.0), bucket_of(1.001)), (0, 0, 0, 1));
        assert_eq!((bucket_of(2.0), bucket_of(2.001), bucket_of(f64::MAX)), (4, 5, LAST_BUCKET));
        let days = |days: f64| days * 86_400_000.0;
        assert_eq!((bucket_of(days(35.0)), bucket_of(days(41.0))), (LAST_BUCKET - 1, LAST_BUCKET));
    }

    proptest! {
        #[test]
        fn a_percentile_is_within_ten_percent(
            mut latencies in prop::collection::vec(1.0..3_000_000_000.0_f64, 1..200),
            percent in 1..=100_u8,
        ) {
            let estimated = estimate(&latencies, percent).unwrap();
            latencies.sort_by(f64::total_cmp);
            let rank = (latencies.len() * usize::from(percent)).div_ceil(100);
            let exact = latencies[rank - 1];
            prop_assert!((estimated / exact - 1.0).abs() < 0.1, "{estimated} for {exact}");
        }
    }
}
