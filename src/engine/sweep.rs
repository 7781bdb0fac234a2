//! `promote`, `rescue`, `expire`: what time does to work.
//!
//! Each sweep locks what it finds and acts on it in the same transaction. It waits for nobody:
//! what others have locked is passed over, and the sweep comes back for it. Each call takes one
//! bounded batch, of pushes that are given up a smaller one; the clocks in [`crate::background`]
//! call again while there is more.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use crate::domain::delivery::LogLine;
use crate::domain::ids::DeliveryId;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::deliveries::{EarliestTimes, Loaded, find_earliest_times};
use crate::store::tables::lease_watch::{
    LeaseWatchScan, Watched, take_watched_leases, watch_leases, watch_unwatched_leases,
};
use crate::store::tables::overdue::{Sweep, lock_expired_leases, lock_overdue};
use crate::store::tables::ready::{QueueHead, find_heads_of_queues};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::push::dead_letter_budget::DeadLetterBudget;
use crate::engine::waiting::due_times::DueKind;
use crate::engine::{Engine, transaction};

/// Deliveries per transaction.
const SWEEP_ROWS: i64 = 500;

/// Rows of the list of leases per transaction; each stands for one claim.
const WATCH_ROWS: i64 = 100;

/// A row of that list that is overdue for so long is not being looked after by any reaper.
const LEFT_ALONE_SECONDS: f64 = 60.0;

/// After how many seconds a sweep comes back for what others had locked.
const COME_BACK_SECONDS: f64 = 0.2;

/// Rows of `deliveries` that one step of the search for unwatched leases reads.
pub const UNWATCHED_STEP_ROWS: i64 = 5_000;

/// What one batch came to.
#[derive(Debug, Clone, Copy)]
pub struct SweepOutcome {
    /// How many deliveries were changed.
    pub count: usize,
    /// Whether there may be more to do at once.
    pub more: bool,
    /// In how many seconds there will be, if that is known.
    pub next_in: Option<f64>,
}

impl Engine {
    /// Lets work whose time has come into `ready` (or to its turn).
    pub async fn promote_deliveries(&self) -> Result<SweepOutcome, Error> {
        self.sweep(Sweep::Due, DueKind::Due).await
    }

    /// Gives up pending work that has become worthless.
    pub async fn expire_deliveries(&self) -> Result<SweepOutcome, Error> {
        self.sweep(Sweep::Expired, DueKind::Expiry).await
    }

    async fn sweep(&self, sweep: Sweep, kind: DueKind) -> Result<SweepOutcome, Error> {
        let look = self.due_times().scan(kind);
        let (found, count, is_over_budget, applied) = transaction!(self, |conn| {
            let found = lock_overdue(conn, sweep, self.now(), look.from(), SWEEP_ROWS).await?;
            if found.ids.is_empty() {
                return Ok((found, 0, false, Applied::default()));
            }
            let mut changes = ChangeSet::load_locked(conn, &self.scope(), &found.ids).await?;
            let mut overdue = overdue_first(&changes, kind);
            let in_all = overdue.len();
            if sweep == Sweep::Expired {
                let mut budget = DeadLetterBudget::new();
                overdue.retain(|id| changes.get(*id).is_some_and(|loaded| budget.admits(loaded)));
            }
            for id in &overdue {
                let lines = changes.change(*id).map(|loaded| act(loaded, kind, self.settings().poison_after));
                changes.log_all(lines.unwrap_or_default());
            }
            Ok((found, overdue.len(), overdue.len() < in_all, changes.apply(conn).await?))
        })?;
        look.found_head(found.head);
        self.notify_after_commit(&applied);
        let next_in = found.head_in_seconds.map(|seconds| match count {
            // What is overdue and was not changed is locked by somebody.
            0 if seconds <= 0.0 => COME_BACK_SECONDS,
            _ => seconds,
        });
        Ok(SweepOutcome { count, more: is_over_budget || found.ids.len() as i64 == SWEEP_ROWS, next_in })
    }

    /// The heads of queues, looked for from their very beginning, which may take its time.
    pub async fn find_heads_of_queues(&self, queues: &[String]) -> Result<Vec<QueueHead>, Error> {
        transaction!(self, |conn| Ok(find_heads_of_queues(conn, &self.scope(), queues).await?))
    }

    /// The first moments that anything waits for, looked for in the same way.
    pub async fn find_earliest_times(&self) -> Result<EarliestTimes, Error> {
        transaction!(self, |conn| Ok(find_earliest_times(conn).await?))
    }

    /// Takes back work whose lease has run out.
    pub async fn reset_expired_leases(&self) -> Result<SweepOutcome, Error> {
        let look = self.due_times().scan(DueKind::LeaseEnd);
        let due = LeaseWatchScan {
            from: look.from(),
            rows: WATCH_ROWS,
            limit: SWEEP_ROWS,
            overdue_seconds: 0.0,
            only_pushes: false,
        };
        let (watched, count) = self.rescue(due).await?;
        look.found_head(watched.head);
        // Looked at until nothing is found, so that the mark comes to stand behind what was.
        Ok(SweepOutcome { count, more: watched.taken > 0, next_in: None })
    }

    /// Keeps the list of leases short where nobody takes work back by itself: what is settled
    /// falls out, what workers hold stays; pushes are taken back all the same, since no operator
    /// knows of them. Rows that a server with a reaper would have looked at by now are left to it.
    pub async fn tidy_leases(&self) -> Result<SweepOutcome, Error> {
        let left_alone = LeaseWatchScan {
            from: None,
            rows: WATCH_ROWS,
            limit: SWEEP_ROWS,
            overdue_seconds: LEFT_ALONE_SECONDS,
            only_pushes: true,
        };
        let (watched, count) = self.rescue(left_alone).await?;
        Ok(SweepOutcome { count, more: watched.taken == WATCH_ROWS, next_in: None })
    }

    async fn rescue(&self, due: LeaseWatchScan) -> Result<(Watched, usize), Error> {
        let (watched, count, applied) = transaction!(self, |conn| {
            let watched = take_watched_leases(conn, self.now(), due).await?;
            if watched.expired.is_empty() {
                return Ok((watched, 0, Applied::default()));
            }
            let poison_after = self.settings().poison_after;
            let locked = lock_expired_leases(conn, self.now(), &watched.expired, poison_after).await?;
            let mut changes = ChangeSet::load_locked(conn, &self.scope(), &locked).await?;
            let overdue = overdue_first(&changes, DueKind::LeaseEnd);
            let mut budget = DeadLetterBudget::new();
            let (overdue, over_budget): (Vec<DeliveryId>, Vec<DeliveryId>) = overdue.into_iter().partition(|id| {
                let is_poison = |loaded: &Loaded| loaded.delivery.rescue_count + 1 >= poison_after;
                changes.get(*id).is_none_or(|loaded| !is_poison(loaded) || budget.admits(loaded))
            });
            for id in &overdue {
                let lines = changes.change(*id).map(|loaded| act(loaded, DueKind::LeaseEnd, poison_after));
                changes.log_all(lines.unwrap_or_default());
            }
            let mut applied = changes.apply(conn).await?;
            // They are locked by somebody, who may extend the lease, or had it extended since the
            // list was read.
            let locked = without(&without(&watched.expired, &overdue), &over_budget);
            for (left, seconds) in [(locked, COME_BACK_SECONDS), (over_budget, 0.0)] {
                if !left.is_empty() {
                    let look_at = watch_leases(conn, self.now(), &left, seconds).await?;
                    applied.earliest_times.look_at = applied.earliest_times.look_at.into_iter().chain([look_at]).min();
                }
            }
            Ok((watched, overdue.len(), applied))
        })?;
        self.notify_after_commit(&applied);
        Ok((watched, count))
    }

    /// Looks at some deliveries behind `after_id`, and puts those on the list of leases that have
    /// one and are not on it. Returns how many these were, and the last id that was looked at, or
    /// none at the end.
    pub async fn watch_unwatched_leases(
        &self,
        after_id: Option<DeliveryId>,
    ) -> Result<(usize, Option<DeliveryId>), Error> {
        let step = transaction!(self, |conn| {
            let (rows, overdue) = (UNWATCHED_STEP_ROWS, LEFT_ALONE_SECONDS);
            Ok(watch_unwatched_leases(conn, self.now(), after_id, rows, overdue).await?)
        })?;
        let count = step.unwatched.len();
        if count > 0 {
            self.due_times().wait_for(&EarliestTimes { look_at: Some(step.look_at), ..EarliestTimes::default() });
            self.metrics().unwatched_leases.inc_by(count as u64);
            let first_ids = &step.unwatched[..count.min(10)];
            log::warn!(count, first_ids:? = first_ids; "leases were not on the list of leases, and are now");
        }
        Ok((count, step.last_id))
    }
}

fn without(ids: &[DeliveryId], others: &[DeliveryId]) -> Vec<DeliveryId> {
    let others: BTreeSet<DeliveryId> = others.iter().copied().collect();
    ids.iter().copied().filter(|id| !others.contains(id)).collect()
}

/// Returns those that are still overdue, the longest first: they have a right to be claimed first.
fn overdue_first(changes: &ChangeSet, kind: DueKind) -> Vec<DeliveryId> {
    let since = |id: DeliveryId| overdue_since(changes.get(id)?, kind).map(|at| (at, id));
    let mut overdue: Vec<(DateTime<Utc>, DeliveryId)> = changes.ids().into_iter().filter_map(since).collect();
    overdue.sort_unstable();
    overdue.into_iter().map(|(_, id)| id).collect()
}

/// Returns since when a delivery is overdue, if it is.
pub(super) fn overdue_since(loaded: &Loaded, kind: DueKind) -> Option<DateTime<Utc>> {
    let delivery = &loaded.delivery;
    let at = match kind {
        DueKind::Due => delivery.due_at(),
        DueKind::Expiry => delivery.expires_at.filter(|_| delivery.status == Status::Pending),
        DueKind::LeaseEnd => delivery.lease_expires_at,
    };
    at.filter(|at| *at <= loaded.now)
}

/// Changes a delivery that is overdue; returns the lines for the log.
pub(super) fn act(loaded: &mut Loaded, kind: DueKind, poison_after: i32) -> Vec<LogLine> {
    match kind {
        DueKind::Due => {
            loaded.delivery.become_due();
            Vec::new()
        }
        DueKind::Expiry => vec![loaded.delivery.expire()],
        DueKind::LeaseEnd => loaded.delivery.rescue(poison_after, loaded.now),
    }
}
