//! Sweeps the overdue deliveries of ordering keys whose lock is always held.
//!
//! An ordinary sweep only tries the lock of a key, so that one key cannot block all others. But the lock
//! of a key that is published to without pause is never free when it is tried: two alternating
//! publishers are enough. Its overdue deliveries would wait for as long as they publish. Therefore this
//! sweep waits for the lock, one key at a time and each in its own transaction, in the lock order that
//! all transactions keep. A key that is locked for long costs the others one bounded wait.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::ids::DeliveryKey;
use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::push::dead_letter_budget::DeadLetterBudget;
use crate::engine::sweep::{overdue_since, sweep_delivery};
use crate::engine::waiting::due_times::DueKind;
use crate::engine::{Engine, transaction};
use crate::error::{Error, OutageKind};
use crate::store::connection::transactions::limit_lock_wait;
use crate::store::tables::busy_keys::{BusyKeyScan, OverdueInKey, find_busy_keys};
use crate::store::tables::deliveries::{EarliestTimes, Loaded};

/// Deliveries that are overdue for less than this are left to the ordinary sweeps.
const OVERDUE_SECONDS: f64 = 0.5;

/// The maximum number of candidates of each kind that one round reads.
const CANDIDATES: i64 = 500;

/// The maximum number of keys that one round waits for.
const KEYS_PER_ROUND: usize = 20;

/// The maximum number of deliveries of one key that one transaction changes.
const ROWS_PER_KEY: usize = 100;

/// The maximum wait for the lock of a key.
const LOCK_WAIT: Duration = Duration::from_secs(1);

impl Engine {
    /// Waits for the locks of keys with overdue deliveries, and sweeps those. Returns the number of
    /// deliveries that were changed.
    pub async fn sweep_busy_keys(&self, with_leases: bool) -> Result<usize, Error> {
        let mut keys: BTreeMap<i32, Vec<DeliveryKey>> = BTreeMap::new();
        for overdue in self.find_busy_keys(with_leases).await? {
            keys.entry(overdue.key_lock).or_default().push(overdue.delivery());
        }
        let mut changed = 0;
        for mut overdue in keys.into_values().take(KEYS_PER_ROUND) {
            overdue.truncate(ROWS_PER_KEY);
            match self.sweep_key(&overdue, with_leases).await {
                Ok(count) => changed += count,
                // Another transaction holds the key for long. The other keys must not wait for it.
                Err(error) if error.is_outage(OutageKind::TooSlow) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }

    async fn find_busy_keys(&self, with_leases: bool) -> Result<Vec<OverdueInKey>, Error> {
        let from = |kind: DueKind| self.due_times().scan(kind).from();
        let scan = BusyKeyScan {
            from: EarliestTimes {
                due_at: from(DueKind::Due),
                expires_at: from(DueKind::Expiry),
                look_at: from(DueKind::LeaseEnd),
            },
            overdue_seconds: OVERDUE_SECONDS,
            candidates: CANDIDATES,
            with_leases,
        };
        let mut conn = self.database().connection().await?;
        Ok(find_busy_keys(&mut conn, self.now(), &scan).await?)
    }

    async fn sweep_key(&self, overdue: &[DeliveryKey], with_leases: bool) -> Result<usize, Error> {
        let (count, applied): (usize, Applied) = transaction!(self, |conn| {
            limit_lock_wait(conn, LOCK_WAIT).await?;
            let mut changes = ChangeSet::load_all(conn, self.now(), overdue).await?;
            let mut budget = DeadLetterBudget::new();
            let mut count = 0;
            for key in overdue {
                let Some(due) = changes.get(*key).and_then(|loaded| due_kind(loaded, with_leases)) else { continue };
                if due != DueKind::Due && !changes.get(*key).is_some_and(|loaded| budget.admits(loaded)) {
                    continue;
                }
                let lines =
                    changes.change(*key).map(|loaded| sweep_delivery(loaded, due, self.settings().poison_after));
                changes.log_all(lines.unwrap_or_default());
                count += 1;
            }
            Ok((count, changes.apply(conn).await?))
        })?;
        self.notify_after_commit(&applied);
        Ok(count)
    }
}

/// Returns the kind of due time that a locked delivery has passed, or `None`.
fn due_kind(loaded: &Loaded, with_leases: bool) -> Option<DueKind> {
    let kinds = [DueKind::Expiry, DueKind::Due, DueKind::LeaseEnd].into_iter();
    let mut wanted = kinds.filter(|kind| with_leases || *kind != DueKind::LeaseEnd);
    wanted.find(|kind| overdue_since(loaded, *kind).is_some())
}
