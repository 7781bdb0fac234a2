//! Sweeps the overdue work of ordering keys that are always in use.
//!
//! A sweep only tries the lock of a key, so that one key cannot hold up all others. But a key that
//! is published to without pause is never free when it is tried: two publishers that take turns
//! are enough. Its overdue work would wait for as long as they publish. So this waits in line for
//! the lock, one key at a time and each in a transaction of its own, in the order of locks that
//! everybody keeps. A key that somebody holds for long costs the others one bounded wait.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::ids::DeliveryId;
use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::push::dead_letter_budget::DeadLetterBudget;
use crate::engine::sweep::{act, overdue_since};
use crate::engine::waiting::due_times::DueKind;
use crate::engine::{Engine, transaction};
use crate::error::{Error, OutageKind};
use crate::store::connection::transactions::limit_lock_wait;
use crate::store::tables::busy_keys::{BusyKeyScan, OverdueInKey, find_busy_keys};
use crate::store::tables::deliveries::{EarliestTimes, Loaded};

/// Work that is overdue for less is left to the sweeps.
const OVERDUE_SECONDS: f64 = 0.5;

/// Candidates of each kind that one round reads.
const CANDIDATES: i64 = 500;

/// Keys that one round waits for.
const KEYS_PER_ROUND: usize = 20;

/// Deliveries of one key that one transaction changes.
const ROWS_PER_KEY: usize = 100;

/// The time to wait for the lock of a key.
const LOCK_WAIT: Duration = Duration::from_secs(1);

impl Engine {
    /// Waits in line for the keys of overdue work, and sweeps it. Returns the number of deliveries
    /// that were changed.
    pub async fn sweep_busy_keys(&self, with_leases: bool) -> Result<usize, Error> {
        let mut keys: BTreeMap<i32, Vec<DeliveryId>> = BTreeMap::new();
        for overdue in self.find_busy_keys(with_leases).await? {
            keys.entry(overdue.key_lock).or_default().push(overdue.id);
        }
        let mut changed = 0;
        for mut ids in keys.into_values().take(KEYS_PER_ROUND) {
            ids.truncate(ROWS_PER_KEY);
            match self.sweep_key(&ids, with_leases).await {
                Ok(count) => changed += count,
                // Somebody holds the key for long. The others must not wait for it.
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

    async fn sweep_key(&self, ids: &[DeliveryId], with_leases: bool) -> Result<usize, Error> {
        let (count, applied): (usize, Applied) = transaction!(self, |conn| {
            limit_lock_wait(conn, LOCK_WAIT).await?;
            let mut changes = ChangeSet::load(conn, &self.scope(), ids).await?;
            let mut budget = DeadLetterBudget::new();
            let mut count = 0;
            for id in ids {
                let Some(due) = changes.get(*id).and_then(|loaded| what_is_due(loaded, with_leases)) else { continue };
                if due != DueKind::Due && !changes.get(*id).is_some_and(|loaded| budget.admits(loaded)) {
                    continue;
                }
                let lines = changes.change(*id).map(|loaded| act(loaded, due, self.settings().poison_after));
                changes.log_all(lines.unwrap_or_default());
                count += 1;
            }
            Ok((count, changes.apply(conn).await?))
        })?;
        self.notify_after_commit(&applied);
        Ok(count)
    }
}

/// Returns what has fallen due of a delivery, now that it is locked.
fn what_is_due(loaded: &Loaded, with_leases: bool) -> Option<DueKind> {
    let kinds = [DueKind::Expiry, DueKind::Due, DueKind::LeaseEnd].into_iter();
    let mut wanted = kinds.filter(|kind| with_leases || *kind != DueKind::LeaseEnd);
    wanted.find(|kind| overdue_since(loaded, *kind).is_some())
}
