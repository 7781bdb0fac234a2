//! A token bucket without a lock.
//!
//! Its only state is the time at which it is full again. Taking tokens moves that time forward, giving none moves it
//! not, and what has passed needs no timer. Several servers share a rate: with `n` of them, a token of each takes `n`
//! times as long to come back, and each holds an `n`th of the burst.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::domain::publish_limits::PublishRate;

const NANOS: i64 = 1_000_000_000;

/// What a server may use of a rate, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// The time in which a token comes back.
    interval: i64,
    /// The time in which an empty bucket fills.
    capacity: i64,
}

impl Share {
    /// Returns the share of each of `servers`.
    pub(crate) fn of(rate: PublishRate, servers: u32) -> Self {
        let per_second = i64::from(rate.per_second.max(1));
        Share {
            interval: NANOS * i64::from(servers.max(1)) / per_second,
            capacity: NANOS * i64::from(rate.burst) / per_second,
        }
    }

    fn cost(self, events: usize) -> i64 {
        self.interval.saturating_mul(i64::try_from(events).unwrap_or(i64::MAX))
    }

    /// Returns the tokens in a bucket that takes so long to be full.
    pub(crate) fn available(self, missing: i64) -> i64 {
        (self.capacity - missing).max(0) / self.interval
    }
}

/// A bucket. A new one is full.
#[derive(Debug)]
pub(crate) struct Bucket {
    full_at: AtomicI64,
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket { full_at: AtomicI64::new(i64::MIN) }
    }
}

impl Bucket {
    /// Takes a token per event at the time `now`. Returns how long the bucket then takes to be full, or, as an error, how
    /// long the caller has to wait. A full bucket gives more than it holds, and what it owes comes back first: otherwise
    /// a batch that is larger than the burst could never be published.
    pub(crate) fn take(&self, share: Share, now: i64, events: usize) -> Result<i64, i64> {
        let cost = share.cost(events);
        let mut wait = 0;
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let missing = full_at.max(now) - now;
            wait = missing - (share.capacity - cost).max(0);
            (wait <= 0).then(|| full_at.max(now).saturating_add(cost))
        });
        taken.map(|before| before.max(now).saturating_add(cost) - now).map_err(|_| wait)
    }

    /// Puts tokens back that were taken for a publish that was refused after all.
    pub(crate) fn give_back(&self, share: Share, events: usize) {
        self.full_at.fetch_sub(share.cost(events), Ordering::Relaxed);
    }

    /// Returns how long the bucket takes to be full.
    pub(crate) fn missing(&self, now: i64) -> i64 {
        self.full_at.load(Ordering::Relaxed).max(now) - now
    }
}

/// Returns a time in whole seconds, rounded up.
pub(crate) fn seconds(nanos: i64) -> u64 {
    u64::try_from(nanos.max(0)).unwrap_or_default().div_ceil(NANOS.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: PublishRate = PublishRate { per_second: 10, burst: 20 };

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_then_its_rate() {
        let (bucket, share) = (Bucket::default(), Share::of(RATE, 1));
        let granted = (0..100).filter(|_| bucket.take(share, 0, 1).is_ok()).count();
        assert_eq!(granted, 20);
        assert_eq!(bucket.take(share, 0, 1), Err(NANOS / 10));
        assert_eq!(bucket.take(share, 0, 5), Err(NANOS / 2));
        let later: usize =
            (1..=50).map(|tenth| (0..9).filter(|_| bucket.take(share, tenth * NANOS / 10, 1).is_ok()).count()).sum();
        assert_eq!(later, 50);
        assert_eq!(share.available(bucket.missing(7 * NANOS)), 20, "it holds no more than its burst");
    }

    #[test]
    fn a_full_bucket_gives_more_than_it_holds_and_gets_it_back_first() {
        let (bucket, share) = (Bucket::default(), Share::of(RATE, 1));
        assert_eq!(bucket.take(share, 0, 100), Ok(10 * NANOS));
        assert_eq!(bucket.take(share, 0, 1), Err(8 * NANOS + NANOS / 10));
        assert_eq!(bucket.take(share, 9 * NANOS, 100), Err(NANOS));
        assert!(bucket.take(share, 10 * NANOS, 100).is_ok());
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let (bucket, share) = (Bucket::default(), Share::of(RATE, 1));
        assert!(bucket.take(share, 0, 20).is_ok());
        bucket.give_back(share, 5);
        assert!(bucket.take(share, 0, 5).is_ok());
        assert!(bucket.take(share, 0, 1).is_err());
    }

    /// All servers are asked for more than their share, at moments that do not fit the rate.
    #[test]
    fn the_shares_of_servers_add_up_to_the_rate() {
        const STEP: i64 = 17_000_030;
        for (per_second, burst) in [(1, 1), (7, 7), (100, 300), (500, 100)] {
            for servers in 1..=5u32 {
                let share = Share::of(PublishRate { per_second, burst }, servers);
                let buckets: Vec<Bucket> = (0..servers).map(|_| Bucket::default()).collect();
                let granted_at = |now: i64| -> usize {
                    buckets.iter().map(|bucket| (0..12).filter(|_| bucket.take(share, now, 1).is_ok()).count()).sum()
                };
                // The bursts are used up before it counts.
                for step in 0..1_000 {
                    granted_at(step * STEP);
                }
                let granted: usize = (1_000..21_000).map(|step| granted_at(step * STEP)).sum();
                let wanted = i64::from(per_second) * 20_000 * STEP / NANOS;
                let error = (i64::try_from(granted).unwrap() - wanted).abs();
                assert!(error * 50 <= wanted, "{per_second}/s with {servers} servers: {granted} of {wanted}");
            }
        }
    }
}
