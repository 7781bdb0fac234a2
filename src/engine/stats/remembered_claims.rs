//! What is known of the events that workers hold, so that their completions need not be looked up.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::domain::ids::EventKey;

/// The maximum number of claims that are remembered. The oldest ones are forgotten in halves: a claim that is settled
/// at another server, or never, is not in the way for long.
const MAX_CLAIMS: usize = 100_000;

/// What is remembered of a claimed event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RememberedClaim {
    pub published_at: DateTime<Utc>,
    /// The tags, separated by commas.
    pub tags: Box<str>,
}

/// The latest claims.
#[derive(Default)]
pub(super) struct RememberedClaims {
    recent: HashMap<EventKey, RememberedClaim>,
    earlier: HashMap<EventKey, RememberedClaim>,
}

impl RememberedClaims {
    pub(super) fn remember(&mut self, event: EventKey, claim: RememberedClaim) {
        if self.recent.len() >= MAX_CLAIMS / 2 {
            self.earlier = std::mem::take(&mut self.recent);
        }
        self.recent.insert(event, claim);
    }

    /// Returns what is known of a claimed event, and forgets it.
    pub(super) fn take(&mut self, event: EventKey) -> Option<RememberedClaim> {
        self.recent.remove(&event).or_else(|| self.earlier.remove(&event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{EventId, NamespaceId};

    fn event(id: usize) -> EventKey {
        NamespaceId::DEFAULT.event(EventId(id as i64))
    }

    #[test]
    fn the_latest_claims_are_remembered_and_the_oldest_forgotten() {
        let mut claims = RememberedClaims::default();
        for id in 0..2 * MAX_CLAIMS {
            claims.remember(event(id), RememberedClaim { published_at: DateTime::UNIX_EPOCH, tags: "a".into() });
            assert!(claims.recent.len() + claims.earlier.len() <= MAX_CLAIMS);
        }
        assert_eq!(claims.take(event(0)), None);
        assert!(claims.take(event(2 * MAX_CLAIMS - 1)).is_some());
        assert!(claims.take(event(2 * MAX_CLAIMS - MAX_CLAIMS / 2)).is_some());
        assert_eq!(claims.take(event(2 * MAX_CLAIMS - 1)), None, "once");
    }
}
