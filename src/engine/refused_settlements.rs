//! Settlements of workers that were refused, gathered in memory until they are recorded for the page of their event.
//!
//! They change nothing, so nothing depends on them: what cannot be written is lost, and so is what a server has not
//! written when it dies. A call that is refused must cost the database nothing, and a worker that repeats it for hours
//! must not fill a table: calls that differ in nothing but their time are one row, an event has few rows, and a server
//! writes a limited number of rows per hour.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::ids::{EventKey, LeaseId};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::refused_settlements::{RefusedSettlement, record_refused_settlements};

/// The maximum number of rows that wait to be written. Further ones are lost.
const MAX_WAITING: usize = 200;

/// The maximum number of rows that a server writes within an hour.
const MAX_PER_HOUR: usize = 2_000;

/// What refused settlements have in common that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefusedKind {
    pub event: EventKey,
    /// The claim that the caller named, or [`LeaseId::NONE`].
    pub lease_id: LeaseId,
    /// The last word of the path: `complete`, `fail`, …
    pub action: &'static str,
    /// The code of the problem that the caller got.
    pub code: &'static str,
    pub worker_id: String,
}

#[derive(Debug)]
struct Counted {
    actor: Option<String>,
    calls: i64,
    first_at: DateTime<Utc>,
    last_at: DateTime<Utc>,
}

/// The refused settlements since they were last recorded.
#[derive(Default)]
pub struct RefusedSettlements {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    kinds: HashMap<RefusedKind, Counted>,
    /// The begin of the present hour, and the number of rows that were taken in it.
    hour: Option<(DateTime<Utc>, usize)>,
}

impl RefusedSettlements {
    /// Counts a settlement that was refused. `actor` is the name of the caller's key.
    pub fn note(&self, kind: RefusedKind, actor: Option<&str>, now: DateTime<Utc>) {
        let mut waiting = self.lock();
        let is_full = waiting.kinds.len() >= MAX_WAITING || waiting.is_over_budget(now);
        match waiting.kinds.entry(kind) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.calls += 1;
                known.actor = actor.map(str::to_owned);
                known.last_at = known.last_at.max(now);
            }
            Entry::Vacant(new) if !is_full => {
                new.insert(Counted { actor: actor.map(str::to_owned), calls: 1, first_at: now, last_at: now });
            }
            Entry::Vacant(_) => {}
        }
    }

    fn take(&self, now: DateTime<Utc>) -> Vec<(EventKey, RefusedSettlement)> {
        let mut waiting = self.lock();
        let kinds = std::mem::take(&mut waiting.kinds);
        waiting.spend(kinds.len(), now);
        drop(waiting);
        kinds.into_iter().map(row_of).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Returns whether what was written in the present hour, and what waits, is all that may be written in it.
    fn is_over_budget(&self, now: DateTime<Utc>) -> bool {
        let written = self.hour.filter(|(begin, _)| now - *begin < TimeDelta::hours(1)).map_or(0, |(_, rows)| rows);
        written + self.kinds.len() >= MAX_PER_HOUR
    }

    fn spend(&mut self, rows: usize, now: DateTime<Utc>) {
        let present = self.hour.filter(|(begin, _)| now - *begin < TimeDelta::hours(1));
        self.hour = Some(present.map_or((now, rows), |(begin, before)| (begin, before + rows)));
    }
}

fn row_of((kind, counted): (RefusedKind, Counted)) -> (EventKey, RefusedSettlement) {
    let row = RefusedSettlement {
        lease_id: kind.lease_id,
        action: kind.action.to_owned(),
        code: kind.code.to_owned(),
        worker_id: kind.worker_id,
        actor: counted.actor,
        calls: counted.calls,
        first_at: counted.first_at,
        last_at: counted.last_at,
    };
    (kind.event, row)
}

impl Engine {
    /// Records the refused settlements since the last call. Returns the number of rows. If the statement fails, they
    /// are lost.
    pub async fn record_refused_settlements(&self) -> Result<usize, Error> {
        let refused = self.refused_settlements().take(self.time());
        if !refused.is_empty() {
            let mut conn = self.database().connection().await?;
            record_refused_settlements(&mut conn, &refused).await?;
        }
        Ok(refused.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{EventId, NamespaceId};

    fn kind(event: i64, worker: &str) -> RefusedKind {
        let event = EventKey { namespace: NamespaceId::DEFAULT, id: EventId(event) };
        RefusedKind {
            event,
            lease_id: LeaseId(7),
            action: "complete",
            code: "lease_lost",
            worker_id: worker.to_owned(),
        }
    }

    #[test]
    fn repeated_calls_are_one_row_and_rows_that_wait_are_bounded() {
        let (refused, now) = (RefusedSettlements::default(), Utc::now());
        for event in 0..1_000 {
            for second in 0..3 {
                refused.note(kind(event, "host:1"), Some("ann"), now + TimeDelta::seconds(second));
            }
        }
        let taken = refused.take(now);
        assert_eq!(taken.len(), MAX_WAITING);
        assert!(taken.iter().all(|(_, row)| (row.calls, row.first_at) == (3, now) && row.last_at > now));
        assert!(refused.take(now).is_empty());
    }

    #[test]
    fn a_server_writes_a_limited_number_of_rows_per_hour() {
        let (refused, now) = (RefusedSettlements::default(), Utc::now());
        let written = |now| {
            (0..50)
                .map(|round| {
                    (0..100).for_each(|event| refused.note(kind(round * 100 + event, "host:1"), None, now));
                    refused.take(now).len()
                })
                .sum::<usize>()
        };
        assert_eq!(written(now), MAX_PER_HOUR);
        assert_eq!(written(now + TimeDelta::minutes(59)), 0);
        assert_eq!(written(now + TimeDelta::minutes(61)), MAX_PER_HOUR);
    }
}
