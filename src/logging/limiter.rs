//! Limits the lines of notable events: a queue that fails ten thousand times in a second must not fill the disk.
//!
//! Of each [`Kind`], [`LINES_PER_KIND`] lines are written in each window of time. The others are counted, and
//! [`report_suppressed`] writes one line with their number. A line that is not written costs two atomic additions. What
//! the lines would say is in the event log, and how many there were is in `/metrics`.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of lines of one kind that are written in a window.
const LINES_PER_KIND: u64 = 20;

/// The length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// The kinds of lines that are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request that the server could not serve.
    FailedRequest,
    SlowRequest,
    /// Why the database could not be used by a request.
    Outage,
    RetryScheduled,
    EventFailed,
    EventCancelled,
    EventPoisoned,
    EventExpired,
    LeaseExpired,
    DeadLetter,
    Breaker,
    Operation,
    PushDelivered,
    PushRetried,
    PushGivenUp,
    PushLost,
}

impl Kind {
    const ALL: [Kind; 16] = [
        Kind::FailedRequest,
        Kind::SlowRequest,
        Kind::Outage,
        Kind::RetryScheduled,
        Kind::EventFailed,
        Kind::EventCancelled,
        Kind::EventPoisoned,
        Kind::EventExpired,
        Kind::LeaseExpired,
        Kind::DeadLetter,
        Kind::Breaker,
        Kind::Operation,
        Kind::PushDelivered,
        Kind::PushRetried,
        Kind::PushGivenUp,
        Kind::PushLost,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Kind::FailedRequest => "failed_request",
            Kind::SlowRequest => "slow_request",
            Kind::Outage => "outage",
            Kind::RetryScheduled => "retry_scheduled",
            Kind::EventFailed => "event_failed",
            Kind::EventCancelled => "event_cancelled",
            Kind::EventPoisoned => "event_poisoned",
            Kind::EventExpired => "event_expired",
            Kind::LeaseExpired => "lease_expired",
            Kind::DeadLetter => "dead_letter",
            Kind::Breaker => "breaker",
            Kind::Operation => "operation",
            Kind::PushDelivered => "push_delivered",
            Kind::PushRetried => "push_retried",
            Kind::PushGivenUp => "push_given_up",
            Kind::PushLost => "push_lost",
        }
    }

    /// Returns whether a line of this kind is to be written now, and counts it.
    pub(crate) fn is_due(self) -> bool {
        log::max_level() >= log::Level::Info && LIMITERS[self as usize].admit(present_window())
    }
}

static LIMITERS: [Limiter; Kind::ALL.len()] = [const { Limiter::new() }; Kind::ALL.len()];

/// Returns the number of the present window, from 1.
fn present_window() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_secs() / WINDOW.as_secs() + 1
}

/// Writes the number of lines that were not written since the last call, for each kind of which there are any.
pub(crate) fn report_suppressed() {
    for (kind, limiter) in Kind::ALL.into_iter().zip(&LIMITERS) {
        let lines = limiter.suppressed.swap(0, Ordering::Relaxed);
        if lines > 0 {
            log::info!(kind = kind.as_str(), lines; "more lines of this kind were suppressed");
        }
    }
}

/// The lines of one kind.
struct Limiter {
    /// The window that `lines` is about.
    window: AtomicU64,
    lines: AtomicU64,
    suppressed: AtomicU64,
}

impl Limiter {
    const fn new() -> Self {
        Limiter { window: AtomicU64::new(0), lines: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    fn admit(&self, window: u64) -> bool {
        // Two threads that meet here at the beginning of a window may let a few more lines pass.
        if self.window.swap(window, Ordering::Relaxed) != window {
            self.lines.store(0, Ordering::Relaxed);
        }
        let is_admitted = self.lines.fetch_add(1, Ordering::Relaxed) < LINES_PER_KIND;
        if !is_admitted {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_number_of_lines_and_the_next_one_begins_again() {
        let limiter = Limiter::new();
        let admitted = |window| (0..100).filter(|_| limiter.admit(window)).count() as u64;
        assert_eq!(admitted(1), LINES_PER_KIND);
        assert_eq!(admitted(1), 0);
        assert_eq!(admitted(2), LINES_PER_KIND);
        assert_eq!(limiter.suppressed.load(Ordering::Relaxed), 300 - 2 * LINES_PER_KIND);
    }

    #[test]
    fn every_kind_has_a_limiter_of_its_own() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{kind:?}");
        }
    }
}
