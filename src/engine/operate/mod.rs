//! `reset`, `retry`, `cancel`: an operator's word on events.

mod deliveries;
pub mod operator_actions;
pub mod replay_jobs;
pub mod replays;
mod retry_events;
pub mod subscriptions;

use std::collections::{BTreeMap, BTreeSet};

use diesel_async::AsyncPgConnection;

use crate::domain::ids::{DeliveryId, EventId};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::get_event;
use crate::store::tables::lease_watch::{HeldDelivery, find_stale_deliveries};
use crate::store::tables::roll_ups::{find_rolled_up, lock_rolled_up, request_cancel};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::operate::operator_actions::{OperatorAction, RETRIABLE, ResetTarget, SUBSCRIBED, operate_on_one};
use crate::engine::{Engine, transaction};

/// Deliveries per transaction of an operator's verb, whether it is on one event or on many.
pub(crate) const DELIVERIES_PER_TRANSACTION: usize = 500;

/// Deliveries that one bulk call changes at most.
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
    pub event_ids: Vec<EventId>,
}

impl Engine {
    /// PROCESSING → PENDING.
    pub async fn reset_event(&self, scope: Scope, id: EventId, reason: String) -> Result<EventRow, Error> {
        self.operate_on(scope, id, OperatorAction::Reset { reason, of: ResetTarget::Any }).await
    }

    /// FAILED or CANCELLED → PENDING, counters fresh.
    pub async fn retry_event(&self, scope: Scope, id: EventId, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(scope, id, OperatorAction::Retry { reason }).await
    }

    /// PENDING → CANCELLED; what somebody holds is marked.
    pub async fn cancel_event(&self, scope: Scope, id: EventId, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(scope, id, OperatorAction::Cancel { reason }).await
    }

    /// Resets everything whose lease has run out or, if `stale_for` is given, whose worker has
    /// given no sign of life for so many seconds.
    pub async fn reset_stale(
        &self,
        scope: Scope,
        stale_for: Option<f64>,
        reason: String,
    ) -> Result<BulkOutcome, Error> {
        let action = OperatorAction::Reset { reason, of: ResetTarget::Stale { silent_seconds: stale_for } };
        let mut count = 0;
        loop {
            let limit = DELIVERIES_PER_TRANSACTION;
            let found = self
                .find_stale_deliveries(&scope, stale_for, limit as i64)
                .await
                .map_err(|error| error_after(count, error))?;
            let ids: Vec<DeliveryId> = found.into_iter().map(|held| held.id).collect();
            let is_full = ids.len() == limit;
            count += self
                .operate_on_many(&scope, ids, action.clone())
                .await
                .map_err(|error| error_after(count, error))?
                .len();
            if !is_full || count >= BULK_LIMIT {
                return Ok(BulkOutcome { count, more: is_full });
            }
        }
    }

    /// Returns what [`Engine::reset_stale`] would reset, and who holds it.
    pub async fn preview_reset(&self, scope: Scope, stale_for: Option<f64>) -> Result<ResetPreview, Error> {
        let mut held = self.find_stale_deliveries(&scope, stale_for, BULK_LIMIT as i64 + 1).await?;
        let more = held.len() > BULK_LIMIT;
        held.truncate(BULK_LIMIT);
        let outcome = BulkOutcome { count: held.len(), more };
        Ok(ResetPreview { outcome, holders: holders_of(held) })
    }

    async fn find_stale_deliveries(
        &self,
        scope: &Scope,
        stale_for: Option<f64>,
        limit: i64,
    ) -> Result<Vec<HeldDelivery>, Error> {
        let (engine, scope) = (self.clone(), scope.clone());
        self.detached(async move {
            let mut conn = engine.database().connection().await?;
            Ok(find_stale_deliveries(&mut conn, &scope, stale_for, limit).await?)
        })
        .await
    }

    async fn operate_on(&self, scope: Scope, id: EventId, action: OperatorAction) -> Result<EventRow, Error> {
        let engine = self.clone();
        self.detached(async move {
            let done = transaction!(engine, |conn| {
                let applied = match find_rolled_up(conn, id).await? {
                    Some(pushes) if pushes.len() > DELIVERIES_PER_TRANSACTION => return Ok(Err(pushes)),
                    Some(pushes) => operate_on_pushes(conn, &scope, id, &pushes, &action).await?,
                    None => operate_on_one(conn, &scope, id.own_delivery(), false, &action).await?,
                };
                Ok(Ok((read_back(conn, &scope, id).await?, applied)))
            })?;
            match done {
                Ok((row, applied)) => {
                    engine.notify_after_commit(&applied);
                    Ok(row)
                }
                Err(pushes) => engine.operate_in_parts(&scope, id, &pushes, &action).await,
            }
        })
        .await
    }

    /// Carries a verb out on an event with more pushes than one transaction takes. If time runs out
    /// in between, its caller is told so, and may say the same again: it goes on with the rest.
    async fn operate_in_parts(
        &self,
        scope: &Scope,
        id: EventId,
        pushes: &[DeliveryId],
        action: &OperatorAction,
    ) -> Result<EventRow, Error> {
        let mut changed = 0;
        for (number, part) in pushes.chunks(DELIVERIES_PER_TRANSACTION).enumerate() {
            let worked = transaction!(self, |conn| {
                let mut changes = load(conn, scope, part).await?;
                if number == 0 {
                    begin_on_pushes(conn, id, action).await?;
                }
                let fitting = carry_out_all(&mut changes, action);
                Ok((fitting, changes.apply(conn).await?))
            });
            let (fitting, applied) = worked.map_err(|error| error_after(changed, error))?;
            self.notify_after_commit(&applied);
            changed += fitting;
        }
        let row =
            transaction!(self, |conn| read_back(conn, scope, id).await).map_err(|error| error_after(changed, error))?;
        if changed == 0 && matches!(action, OperatorAction::Retry { .. }) {
            return Err(nothing_to_retry(id, row.work.status.0));
        }
        Ok(row)
    }

    /// Carries a verb out on deliveries that it fits, passing over the others. Returns whose events
    /// they are.
    pub(crate) async fn operate_on_many(
        &self,
        scope: &Scope,
        ids: Vec<DeliveryId>,
        action: OperatorAction,
    ) -> Result<BTreeSet<EventId>, Error> {
        let (engine, scope) = (self.clone(), scope.clone());
        self.detached(async move {
            let (events, applied): (BTreeSet<EventId>, Applied) = transaction!(engine, |conn| {
                let mut changes = load(conn, &scope, &ids).await?;
                let fitting = action.fitting(&changes);
                let event_of = |id: &DeliveryId| Some(changes.get(*id)?.delivery.event_id);
                let events = fitting.iter().filter_map(event_of).collect();
                for id in &fitting {
                    action.carry_out(&mut changes, *id);
                }
                Ok((events, changes.apply(conn).await?))
            })?;
            engine.notify_after_commit(&applied);
            Ok(events)
        })
        .await
    }
}

async fn load(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[DeliveryId]) -> Result<ChangeSet, Error> {
    let mut changes = ChangeSet::load(conn, scope, ids).await?;
    changes.find_orphans(conn).await?;
    Ok(changes)
}

/// An event that is only pushed has no work of its own: what is meant is its pushes. Its own row is
/// written by what becomes of them.
async fn operate_on_pushes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: EventId,
    pushes: &[DeliveryId],
    action: &OperatorAction,
) -> Result<Applied, Error> {
    let mut changes = load(conn, scope, pushes).await?;
    let status = begin_on_pushes(conn, id, action).await?;
    if carry_out_all(&mut changes, action) == 0 && matches!(action, OperatorAction::Retry { .. }) {
        return Err(nothing_to_retry(id, status));
    }
    changes.apply(conn).await
}

/// Checks that a verb fits where an event stands, and notes on its own row that its pushes are
/// called off. Its own row stays locked. Pushes are locked before it, like everywhere.
async fn begin_on_pushes(conn: &mut AsyncPgConnection, id: EventId, action: &OperatorAction) -> Result<Status, Error> {
    let state = lock_rolled_up(conn, id).await?;
    action.check_rolled_up(id, &state)?;
    if let OperatorAction::Cancel { reason } = action {
        request_cancel(conn, id, reason.as_deref()).await?;
    }
    Ok(state.status.0)
}

/// Returns how many pushes of an event a verb was carried out on.
fn carry_out_all(changes: &mut ChangeSet, action: &OperatorAction) -> usize {
    let fitting = match action {
        OperatorAction::Cancel { .. } => changes.ids_where(|loaded| !loaded.delivery.status.is_finished()),
        _ => action.fitting(changes),
    };
    for id in &fitting {
        action.carry_out(changes, *id);
    }
    fitting.len()
}

fn nothing_to_retry(id: EventId, status: Status) -> Error {
    let wanted = if status == Status::Pending { RETRIABLE } else { SUBSCRIBED };
    Error::WrongState { what: "event", id: id.0, status, wanted }
}

async fn read_back(conn: &mut AsyncPgConnection, scope: &Scope, id: EventId) -> Result<EventRow, Error> {
    get_event(conn, scope, id).await?.ok_or(Error::EventNotFound(id))
}

/// Groups work by the worker that holds it. The id of an event's own work is that of the event.
fn holders_of(held: Vec<HeldDelivery>) -> Vec<Holder> {
    let mut by_worker: BTreeMap<String, Vec<EventId>> = BTreeMap::new();
    for HeldDelivery { id, worker_id } in held {
        by_worker.entry(worker_id).or_default().push(EventId(id.0));
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
pub(crate) fn error_after(changed: usize, error: Error) -> Error {
    if changed == 0 { error } else { error.after_a_part() }
}
