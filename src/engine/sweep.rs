//! Sweeps: `promote`, `rescue` and `expire` change deliveries whose time has come.
//!
//! Each sweep locks the rows that it finds and changes them in the same transaction. It does not wait
//! for locks: rows that are locked by others are skipped and retried later. Each call handles one bounded
//! batch, which is smaller if it writes dead letters. The services in [`crate::background`] call again
//! while there is more to do.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use crate::domain::action::Action;
use crate::domain::actor::ServerActor;
use crate::domain::delivery::LogLine;
use crate::domain::ids::DeliveryKey;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::deliveries::{EarliestTimes, Loaded, find_earliest_times};
use crate::store::tables::lease_watch::{
    LeaseWatchScan, Watched, take_watched_leases, watch_leases, watch_unwatched_leases,
};
use crate::store::tables::overdue::{Sweep, lock_expired_leases, lock_overdue};
use crate::store::tables::ready::{QueueHead, QueueKey, find_heads_of_queues};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::push::dead_letter_budget::DeadLetterBudget;
use crate::engine::waiting::due_times::DueKind;
use crate::engine::{Engine, transaction};

/// The maximum number of deliveries per transaction.
const SWEEP_ROWS: i64 = 500;

/// The maximum number of rows of the lease watch list per transaction. Each row stands for one claim.
const WATCH_ROWS: i64 = 100;

/// A row of that list that is overdue for longer is not handled by the reaper of any server.
const UNATTENDED_SECONDS: f64 = 60.0;

/// The time after which a sweep retries rows that were locked by others.
const RETRY_LOCKED_SECONDS: f64 = 0.2;

/// The number of rows of `deliveries` that one step of the scan for unwatched leases reads.
pub const UNWATCHED_STEP_ROWS: i64 = 5_000;

/// The result of one batch.
#[derive(Debug, Clone, Copy)]
pub struct SweepOutcome {
    /// The number of deliveries that were changed.
    pub count: usize,
    /// Whether there may be more to do immediately.
    pub more: bool,
    /// The seconds until there is more to do, if known.
    pub next_in: Option<f64>,
}

impl Engine {
    /// Makes due deliveries ready, or lets them queue behind earlier events of their key.
    pub async fn promote_deliveries(&self) -> Result<SweepOutcome, Error> {
        self.sweep(Sweep::Due, DueKind::Due).await
    }

    /// Fails pending deliveries that have expired.
    pub async fn expire_deliveries(&self) -> Result<SweepOutcome, Error> {
        self.sweep(Sweep::Expired, DueKind::Expiry).await
    }

    async fn sweep(&self, sweep: Sweep, kind: DueKind) -> Result<SweepOutcome, Error> {
        let scan = self.due_times().scan(kind);
        let (found, count, is_over_budget, applied) = transaction!(self, |conn| {
            let found = lock_overdue(conn, sweep, self.now(), scan.from(), SWEEP_ROWS).await?;
            let locked = found.keys();
            if locked.is_empty() {
                return Ok((found, 0, false, Applied::default()));
            }
            let mut changes = ChangeSet::load_locked(conn, self.now(), &locked).await?;
            let mut overdue = overdue_first(&changes, kind);
            let total = overdue.len();
            if sweep == Sweep::Expired {
                let mut budget = DeadLetterBudget::new();
                overdue.retain(|key| changes.get(*key).is_some_and(|loaded| budget.admits(loaded)));
            }
            for key in &overdue {
                let lines =
                    changes.change(*key).map(|loaded| sweep_delivery(loaded, kind, self.settings().poison_after));
                changes.log_all(lines.unwrap_or_default());
            }
            Ok((found, overdue.len(), overdue.len() < total, changes.apply(conn).await?))
        })?;
        scan.found_head(found.head);
        self.notify_after_commit(&applied);
        let next_in = found.head_in_seconds.map(|seconds| match count {
            // Overdue deliveries that were not changed are locked by other transactions.
            0 if seconds <= 0.0 => RETRY_LOCKED_SECONDS,
            _ => seconds,
        });
        Ok(SweepOutcome { count, more: is_over_budget || found.keys().len() as i64 == SWEEP_ROWS, next_in })
    }

    /// Returns the heads of queues. Scans from the start of the queues, which may be slow.
    pub async fn find_heads_of_queues(&self, queues: &[QueueKey]) -> Result<Vec<QueueHead>, Error> {
        transaction!(self, |conn| Ok(find_heads_of_queues(conn, queues).await?))
    }

    /// Returns the earliest due times. Scans from the start of the indexes, which may be slow.
    pub async fn find_earliest_times(&self) -> Result<EarliestTimes, Error> {
        transaction!(self, |conn| Ok(find_earliest_times(conn).await?))
    }

    /// Resets deliveries whose lease has run out.
    pub async fn reset_expired_leases(&self) -> Result<SweepOutcome, Error> {
        let scan = self.due_times().scan(DueKind::LeaseEnd);
        let due = LeaseWatchScan {
            from: scan.from(),
            rows: WATCH_ROWS,
            limit: SWEEP_ROWS,
            overdue_seconds: 0.0,
            only_pushes: false,
        };
        let (watched, count) = self.rescue(due).await?;
        scan.found_head(watched.head);
        // Repeated until nothing is found, so that the low-water mark rises past all handled rows.
        Ok(SweepOutcome { count, more: watched.taken > 0, next_in: None })
    }

    /// Keeps the lease watch list short on servers that do not reset expired leases. Removes the rows of
    /// settled claims and keeps those that workers hold. Resets pushes nevertheless, since no operator
    /// knows about them. Handles only rows that the reaper of another server would have handled by now.
    pub async fn tidy_leases(&self) -> Result<SweepOutcome, Error> {
        let unattended = LeaseWatchScan {
            from: None,
            rows: WATCH_ROWS,
            limit: SWEEP_ROWS,
            overdue_seconds: UNATTENDED_SECONDS,
            only_pushes: true,
        };
        let (watched, count) = self.rescue(unattended).await?;
        Ok(SweepOutcome { count, more: watched.taken == WATCH_ROWS, next_in: None })
    }

    async fn rescue(&self, due: LeaseWatchScan) -> Result<(Watched, usize), Error> {
        let (watched, count, applied) = transaction!(self, |conn| {
            let watched = take_watched_leases(conn, self.now(), due).await?;
            let expired = watched.expired();
            if expired.is_empty() {
                return Ok((watched, 0, Applied::default()));
            }
            let poison_after = self.settings().poison_after;
            let locked = lock_expired_leases(conn, self.now(), &expired, poison_after).await?;
            let mut changes = ChangeSet::load_locked(conn, self.now(), &locked).await?;
            let overdue = overdue_first(&changes, DueKind::LeaseEnd);
            let mut budget = DeadLetterBudget::new();
            let (overdue, over_budget): (Vec<DeliveryKey>, Vec<DeliveryKey>) = overdue.into_iter().partition(|key| {
                let is_poison = |loaded: &Loaded| loaded.delivery.rescue_count + 1 >= poison_after;
                changes.get(*key).is_none_or(|loaded| !is_poison(loaded) || budget.admits(loaded))
            });
            for key in &overdue {
                let lines = changes.change(*key).map(|loaded| sweep_delivery(loaded, DueKind::LeaseEnd, poison_after));
                changes.log_all(lines.unwrap_or_default());
            }
            let mut applied = changes.apply(conn).await?;
            // They are locked by a transaction that may extend the lease, or the lease was extended
            // since the list was read.
            let locked = without(&without(&expired, &overdue), &over_budget);
            for (left, seconds) in [(locked, RETRY_LOCKED_SECONDS), (over_budget, 0.0)] {
                if !left.is_empty() {
                    let look_at = watch_leases(conn, self.now(), &left, seconds).await?;
                    applied.earliest_times.look_at = applied.earliest_times.look_at.into_iter().chain(look_at).min();
                }
            }
            Ok((watched, overdue.len(), applied))
        })?;
        self.notify_after_commit(&applied);
        Ok((watched, count))
    }

    /// Reads some deliveries after `after`, of all namespaces, and adds those with a lease that is not on the watch
    /// list to the list. Returns the number of added leases, and the last delivery that was read or `None` at the end.
    pub async fn watch_unwatched_leases(
        &self,
        after: Option<DeliveryKey>,
    ) -> Result<(usize, Option<DeliveryKey>), Error> {
        let step = transaction!(self, |conn| {
            let (rows, overdue) = (UNWATCHED_STEP_ROWS, UNATTENDED_SECONDS);
            Ok(watch_unwatched_leases(conn, self.now(), after, rows, overdue).await?)
        })?;
        let count = step.unwatched.len();
        if count > 0 {
            self.due_times().wait_for(&EarliestTimes { look_at: Some(step.look_at), ..EarliestTimes::default() });
            self.metrics().unwatched_leases.inc_by(count as u64);
            let first_ids = &step.unwatched[..count.min(10)];
            log::warn!(count, first_ids:? = first_ids; "leases were missing from the watch list and have been added");
        }
        Ok((count, step.last()))
    }
}

fn without(keys: &[DeliveryKey], others: &[DeliveryKey]) -> Vec<DeliveryKey> {
    let others: BTreeSet<DeliveryKey> = others.iter().copied().collect();
    keys.iter().copied().filter(|key| !others.contains(key)).collect()
}

/// Returns the deliveries that are still overdue. The longest overdue come first, so that they are claimed first.
fn overdue_first(changes: &ChangeSet, kind: DueKind) -> Vec<DeliveryKey> {
    let since = |key: DeliveryKey| overdue_since(changes.get(key)?, kind).map(|at| (at, key));
    let mut overdue: Vec<(DateTime<Utc>, DeliveryKey)> = changes.keys().into_iter().filter_map(since).collect();
    overdue.sort_unstable();
    overdue.into_iter().map(|(_, key)| key).collect()
}

/// Returns the time since which a delivery is overdue, or `None` if it is not.
pub(super) fn overdue_since(loaded: &Loaded, kind: DueKind) -> Option<DateTime<Utc>> {
    let delivery = &loaded.delivery;
    let at = match kind {
        DueKind::Due => delivery.due_at(),
        DueKind::Expiry => delivery.expires_at.filter(|_| delivery.status == Status::Pending),
        DueKind::LeaseEnd => delivery.lease_expires_at,
    };
    at.filter(|at| *at <= loaded.now)
}

/// Changes an overdue delivery. Returns the lines for the event log. They name the service whose duty it is,
/// whichever sweep finds the delivery.
pub(super) fn sweep_delivery(loaded: &mut Loaded, kind: DueKind, poison_after: i32) -> Vec<LogLine> {
    match kind {
        DueKind::Due => {
            loaded.delivery.become_due();
            Vec::new()
        }
        DueKind::Expiry => by(ServerActor::Expirer, vec![loaded.delivery.expire()]),
        DueKind::LeaseEnd => by(ServerActor::LeaseReaper, loaded.delivery.rescue(poison_after, loaded.now)),
    }
}

/// Names a service in the lines that it causes. Who asked for a cancellation is named already.
fn by(service: ServerActor, mut lines: Vec<LogLine>) -> Vec<LogLine> {
    for line in lines.iter_mut().filter(|line| line.action != Action::Cancelled) {
        line.actor = Some(service.as_str().to_owned());
    }
    lines
}
