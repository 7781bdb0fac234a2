//! A limit on logins per key: each one writes rows, and ends others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::guesses::Budget;
use crate::domain::api_key::KeyHash;

/// The number of logins that a key has at once: more than it may have sessions.
const BURST: f64 = 150.0;

/// The number of keys that are remembered. Beyond it, those whose budget is full again are forgotten.
const REMEMBERED: usize = 1_000;

/// The budgets of all keys that were logged in with lately, on this server.
#[derive(Default)]
pub(crate) struct Logins(Mutex<HashMap<KeyHash, Budget>>);

impl Logins {
    /// Takes one login from the budget of a key, or returns the time to wait if there is none left.
    pub(super) fn take(&self, key: KeyHash, now: Instant) -> Option<Duration> {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if budgets.len() >= REMEMBERED {
            budgets.retain(|_, budget| !budget.is_full(now));
        }
        budgets.entry(key).or_insert_with(|| Budget::full(BURST, now)).take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::api_key::ApiKey;

    #[test]
    fn a_key_that_logs_in_again_and_again_has_to_wait_and_others_do_not() {
        let hash = || ApiKey::hash_of(ApiKey::generate().unwrap().as_text().as_bytes()).unwrap();
        let (logins, now, busy) = (Logins::default(), Instant::now(), hash());
        let taken = (0..1_000).take_while(|_| logins.take(busy, now).is_none()).count();
        assert_eq!(taken, 150);
        assert_eq!(logins.take(hash(), now), None);
        assert_eq!(logins.take(busy, now + Duration::from_secs(7)), None);
    }
}
