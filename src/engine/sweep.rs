//! `promote`, `rescue`, `expire`: what time does to work.
//!
//! Each sweep finds ids without locking, then loads them under lock and looks again, since
//! another server may have been faster. Each call takes one bounded batch; the clocks in
//! [`crate::background`] call again while there is more.

use chrono::{DateTime, Utc};

use crate::domain::delivery::{LogLine, Place};
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::deliveries::{Loaded, Sweep, find_overdue, next_due_in};

use super::changes::Changes;
use super::{Engine, transaction};

/// Rows per transaction.
pub const SWEEP_ROWS: i64 = 500;

impl Engine {
    /// Lets work whose time has come into `ready` (or to its turn); answers how many.
    pub async fn promote_deliveries(&self) -> Result<usize, Error> {
        self.sweep(Sweep::Due).await
    }

    /// Takes back work whose lease has run out; answers how many.
    pub async fn rescue_deliveries(&self) -> Result<usize, Error> {
        self.sweep(Sweep::LeaseExpired).await
    }

    /// Gives up pending work that has become worthless; answers how many.
    pub async fn expire_deliveries(&self) -> Result<usize, Error> {
        self.sweep(Sweep::Expired).await
    }

    /// In how many seconds the next delivery falls due, if any waits.
    pub async fn next_due_in(&self) -> Result<Option<f64>, Error> {
        let mut conn = self.database.connection().await?;
        Ok(next_due_in(&mut conn, self.now()).await?)
    }

    async fn sweep(&self, sweep: Sweep) -> Result<usize, Error> {
        let mut conn = self.database.connection().await?;
        let ids = find_overdue(&mut conn, sweep, self.now(), SWEEP_ROWS).await?;
        drop(conn);
        if ids.is_empty() {
            return Ok(0);
        }
        let engine = self.clone();
        let (count, written) = transaction!(engine, |conn| {
            let mut changes = Changes::load(conn, &ids, engine.now()).await?;
            let overdue = overdue_first(&changes, sweep);
            for id in &overdue {
                let poison_after = engine.settings.poison_after;
                let lines = changes.touch(*id).map(|loaded| act(loaded, sweep, poison_after));
                changes.log_all(lines.unwrap_or_default());
            }
            Ok((overdue.len(), changes.write(conn).await?))
        })?;
        self.wake(&written.entered_ready);
        Ok(count)
    }
}

/// Those that are overdue still, the longest first: they have a right to be claimed first.
fn overdue_first(changes: &Changes, sweep: Sweep) -> Vec<i64> {
    let since = |id: i64| changes.get(id).and_then(|loaded| overdue_since(loaded, sweep)).map(|at| (at, id));
    let mut overdue: Vec<(DateTime<Utc>, i64)> = changes.ids().into_iter().filter_map(since).collect();
    overdue.sort_unstable();
    overdue.into_iter().map(|(_, id)| id).collect()
}

fn overdue_since(loaded: &Loaded, sweep: Sweep) -> Option<DateTime<Utc>> {
    let delivery = &loaded.delivery;
    let moment = match (sweep, delivery.place) {
        (Sweep::Due, Place::Due(at)) => Some(at),
        (Sweep::Due, _) => None,
        (Sweep::LeaseExpired, _) => delivery.lease_expires_at,
        (Sweep::Expired, _) => delivery.expires_at.filter(|_| delivery.status == Status::Pending),
    };
    moment.filter(|at| *at <= loaded.now)
}

fn act(loaded: &mut Loaded, sweep: Sweep, poison_after: i32) -> Vec<LogLine> {
    let now = loaded.now;
    match sweep {
        Sweep::Due => {
            loaded.delivery.become_due();
            Vec::new()
        }
        Sweep::LeaseExpired => loaded.delivery.rescue(poison_after, now),
        Sweep::Expired => vec![loaded.delivery.expire()],
    }
}
