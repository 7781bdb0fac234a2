//! `reset`, `retry`, `cancel`: an operator's word on events.

use std::collections::{BTreeMap, BTreeSet};

use diesel_async::AsyncPgConnection;

use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::events::{EventRow, get_event};
use crate::store::lease_watch::{HeldDelivery, find_stale};
use crate::store::listing::{EventFilter, Page, find_events};
use crate::store::roll_ups::{RolledUp, ask_to_cancel, find_rolled_up, status_of_rolled_up};

use super::changes::{Changes, Written};
use super::verbs::{ResetOf, SUBSCRIBED, Verb, operate_on_one};
use super::{Engine, transaction};

/// Rows per transaction of a bulk operation.
const BULK: i64 = 500;

/// Rows that one bulk call changes at most.
pub const BULK_LIMIT: usize = 10_000;

/// Workers that the preview of a bulk reset names at most.
const PREVIEW_WORKERS: usize = 100;

/// Events that it names of each of them at most.
const PREVIEW_EVENTS: usize = 10;

/// What came of a bulk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOutcome {
    /// How many were changed, or would have been.
    pub count: usize,
    /// Whether there may be more.
    pub more: bool,
}

/// What a bulk reset would do.
#[derive(Debug)]
pub struct ResetPreview {
    /// How many events it would reset.
    pub outcome: BulkOutcome,
    /// Whose: at most `PREVIEW_WORKERS`, those with the most events first.
    pub holders: Vec<Holder>,
}

/// A worker, and what a bulk reset would take from it.
#[derive(Debug)]
pub struct Holder {
    /// The worker.
    pub worker_id: String,
    /// How many events.
    pub events: usize,
    /// At most `PREVIEW_EVENTS` of them, the oldest ids first.
    pub event_ids: Vec<i64>,
}

impl Engine {
    /// PROCESSING → PENDING.
    pub async fn reset_event(&self, id: i64, reason: String) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Reset { reason, of: ResetOf::Any }).await
    }

    /// FAILED or CANCELLED → PENDING, counters fresh.
    pub async fn retry_event(&self, id: i64, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Retry { reason }).await
    }

    /// PENDING → CANCELLED; what somebody holds is marked.
    pub async fn cancel_event(&self, id: i64, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Cancel { reason }).await
    }

    /// Resets everything whose lease has run out or, if `stale_for` is given, whose worker has
    /// given no sign of life for so many seconds.
    pub async fn reset_stale(&self, stale_for: Option<f64>, reason: String) -> Result<BulkOutcome, Error> {
        let verb = Verb::Reset { reason, of: ResetOf::Stale { silent_seconds: stale_for } };
        let mut count = 0;
        loop {
            let found = self.find_stale(stale_for, BULK).await.map_err(|error| told(count, error))?;
            let ids: Vec<i64> = found.into_iter().map(|held| held.id).collect();
            let is_full = ids.len() as i64 == BULK;
            count += self.operate_on_many(ids, verb.clone()).await.map_err(|error| told(count, error))?;
            if !is_full || count >= BULK_LIMIT {
                return Ok(BulkOutcome { count, more: is_full });
            }
        }
    }

    /// Returns what [`Engine::reset_stale`] would reset, and who holds it.
    pub async fn preview_reset(&self, stale_for: Option<f64>) -> Result<ResetPreview, Error> {
        let mut held = self.find_stale(stale_for, BULK_LIMIT as i64 + 1).await?;
        let more = held.len() > BULK_LIMIT;
        held.truncate(BULK_LIMIT);
        let outcome = BulkOutcome { count: held.len(), more };
        Ok(ResetPreview { outcome, holders: holders_of(held) })
    }

    async fn find_stale(&self, stale_for: Option<f64>, limit: i64) -> Result<Vec<HeldDelivery>, Error> {
        let engine = self.clone();
        self.detached(async move {
            let mut conn = engine.database.connection().await?;
            Ok(find_stale(&mut conn, DEFAULT_NAMESPACE, stale_for, engine.now(), limit).await?)
        })
        .await
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
            let (ids, next) = found.await.map_err(|error| told(count, error))?;
            let retried = match dry_run {
                true => Ok(ids.len()),
                false => self.operate_on_many(ids, Verb::Retry { reason: None }).await,
            };
            count += retried.map_err(|error| told(count, error))?;
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
        Verb::Cancel { reason } => {
            ask_to_cancel(conn, event.event_id, reason.as_deref()).await?;
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

/// Groups work by the worker that holds it. The id of an event's own work is that of the event.
fn holders_of(held: Vec<HeldDelivery>) -> Vec<Holder> {
    let mut by_worker: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for HeldDelivery { id, worker_id } in held {
        by_worker.entry(worker_id).or_default().push(id);
    }
    let mut holders: Vec<Holder> = by_worker
        .into_iter()
        .map(|(worker_id, mut event_ids)| {
            let events = event_ids.len();
            event_ids.sort_unstable();
            event_ids.truncate(PREVIEW_EVENTS);
            Holder { worker_id, events, event_ids }
        })
        .collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.events));
    holders.truncate(PREVIEW_WORKERS);
    holders
}

/// What a caller is told of a step that failed, when so many were changed by those before it.
fn told(changed: usize, error: Error) -> Error {
    if changed == 0 { error } else { error.after_a_part() }
}
