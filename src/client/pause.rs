//! The time between two attempts.

use std::time::Duration;

use super::ClientError;

/// The first and the longest pause after a failed request.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The pauses between failed requests: doubled each time, and half of each by chance. A pause that the server names is
/// kept, up to the longest.
#[derive(Debug, Default)]
pub(crate) struct Pause(u32);

impl Pause {
    pub(crate) async fn wait(&mut self, error: &ClientError) {
        tokio::time::sleep(self.next(error)).await;
    }

    /// Returns the next pause.
    pub(crate) fn next(&mut self, error: &ClientError) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << self.0.min(10)).min(LONGEST_PAUSE);
        self.0 += 1;
        let named = error.problem().and_then(|problem| problem.retry_after).unwrap_or_default();
        longest.mul_f64(0.5 + 0.5 * chance()).max(named.min(LONGEST_PAUSE))
    }
}

/// Returns a number from 0 to 1.
fn chance() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX)
}
