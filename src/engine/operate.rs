//! `reset`, `retry`, `cancel`: an operator's word on events.

use std::collections::BTreeSet;

use diesel_async::AsyncPgConnection;

use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::events::{EventRow, get_event};
use crate::store::lease_watch::find_stale;
use crate::store::listing::{EventFilter, Page, find_events};
use crate::store::roll_ups::{RolledUp, ask_to_cancel, find_rolled_up, status_of_rolled_up};

use super::changes::{Changes, Written};
use super::verbs::{SUBSCRIBED, Verb, operate_on_one};
use super::{Engine, transaction};

/// Rows per transaction of a bulk operation.
const BULK: i64 = 500;

/// Rows that one bulk call changes at most.
pub const BULK_LIMIT: usize = 10_000;

/// What came of a bulk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOutcome {
    /// How many were changed, or would have been.
    pub count: usize,
    /// Whether there may be more.
    pub more: bool,
}

impl Engine {
    /// PROCESSING → PENDING.
    pub async fn reset_event(&self, id: i64, reason: String) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Reset { reason, stale_for: 0.0 }).await
    }

    /// FAILED or CANCELLED → PENDING, counters fresh.
    pub async fn retry_event(&self, id: i64, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Retry { reason }).await
    }

    /// PENDING → CANCELLED; what somebody holds is marked.
    pub async fn cancel_event(&self, id: i64, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Cancel { reason }).await
    }

    /// Resets everything that has been held without a sign of life for `stale_for` seconds.
    pub async fn reset_stale(&self, stale_for: f64, reason: String, dry_run: bool) -> Result<BulkOutcome, Error> {
        let mut count = 0;
        loop {
            let limit = if dry_run { BULK_LIMIT as i64 + 1 } else { BULK };
            let engine = self.clone();
            let found = self.detached(async move {
                let mut conn = engine.database.connection().await?;
                Ok(find_stale(&mut conn, DEFAULT_NAMESPACE, stale_for, engine.now(), limit).await?)
            });
            let ids = found.await?;
            if dry_run {
                return Ok(capped(ids.len()));
            }
            count += self.operate_on_many(ids.clone(), Verb::Reset { reason: reason.clone(), stale_for }).await?;
            if (ids.len() as i64) < BULK || count >= BULK_LIMIT {
                return Ok(BulkOutcome { count, more: ids.len() as i64 == BULK });
            }
        }
    }

    /// Retries everything that matches. `filter.status` says which of FAILED and CANCELLED.
    pub async fn retry_events(&self, filter: EventFilter, dry_run: bool) -> Result<BulkOutcome, Error> {
        let mut count = 0;
        let mut after = None;
        loop {
            let page = Page { descending: false, after, offset: 0, limit: BULK, scan: self.settings.list_scan_rows };
            let (engine, filter) = (self.clone(), filter.clone());
            let found = self.detached(async move {
                let mut conn = engine.database.connection().await?;
                Ok(find_events(&mut conn, DEFAULT_NAMESPACE, &filter, page).await?)
            });
            let (ids, next) = found.await?;
            count += if dry_run { ids.len() } else { self.operate_on_many(ids, Verb::Retry { reason: None }).await? };
            match next {
                Some(next) if count < BULK_LIMIT => after = Some(next),
                next => return Ok(BulkOutcome { count, more: next.is_some() }),
            }
        }
    }

    async fn operate_on(&self, id: i64, verb: Verb) -> Result<EventRow, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (row, written) = transaction!(engine, |conn| {
                let written = match find_rolled_up(conn, &[id]).await?.pop() {
                    Some(rolled_up) => operate_on_pushes(conn, &engine, &rolled_up, &verb).await?,
                    None => operate_on_one(conn, &engine, id, false, &verb).await?,
                };
                Ok((read_back(conn, id).await?, written))
            })?;
            engine.follow_up(&written);
            Ok(row)
        })
        .await
    }

    /// Those that the verb does not fit any more are passed over; answers how many events it did fit.
    async fn operate_on_many(&self, ids: Vec<i64>, verb: Verb) -> Result<usize, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (count, written): (usize, Written) = transaction!(engine, |conn| {
                let rolled_up = find_rolled_up(conn, &ids).await?;
                let mut all: BTreeSet<i64> = ids.iter().copied().collect();
                for RolledUp { event_id, pushes } in &rolled_up {
                    all.remove(event_id);
                    all.extend(pushes);
                }
                let mut changes = Changes::load(conn, &Vec::from_iter(all), engine.now()).await?;
                changes.find_orphans(conn).await?;
                let fitting = verb.fitting(&changes);
                let events: BTreeSet<i64> =
                    fitting.iter().filter_map(|id| Some(changes.get(*id)?.delivery.event_id)).collect();
                for id in &fitting {
                    verb.carry_out(&mut changes, *id);
                }
                Ok((events.len(), changes.write(conn).await?))
            })?;
            engine.follow_up(&written);
            Ok(count)
        })
        .await
    }
}

/// An event that is only pushed has no work of its own: what is meant is its pushes. With all of
/// them locked, its own row stays as it is; it is written by what becomes of them.
async fn operate_on_pushes(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    event: &RolledUp,
    verb: &Verb,
) -> Result<Written, Error> {
    let mut changes = Changes::load(conn, &event.pushes, engine.now()).await?;
    changes.find_orphans(conn).await?;
    let status = status_of_rolled_up(conn, event.event_id).await?;
    verb.check_rolled_up(event.event_id, status)?;
    let fitting = match verb {
        Verb::Cancel { .. } => {
            ask_to_cancel(conn, event.event_id).await?;
            changes.ids_where(|loaded| !loaded.delivery.status.is_finished())
        }
        _ => verb.fitting(&changes),
    };
    if fitting.is_empty() && matches!(verb, Verb::Retry { .. }) {
        return Err(Error::WrongState { what: "event", id: event.event_id, status, wanted: SUBSCRIBED });
    }
    for id in fitting {
        verb.carry_out(&mut changes, id);
    }
    changes.write(conn).await
}

async fn read_back(conn: &mut AsyncPgConnection, id: i64) -> Result<EventRow, Error> {
    get_event(conn, DEFAULT_NAMESPACE, id).await?.ok_or(Error::EventNotFound(id))
}

fn capped(found: usize) -> BulkOutcome {
    BulkOutcome { count: found.min(BULK_LIMIT), more: found > BULK_LIMIT }
}
