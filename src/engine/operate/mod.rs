//! Operators reset, retry and cancel events and pushes, replay dead letters and manage subscriptions.
//!
//! An [`OperatorAction`] decides whether it fits the state of a delivery, and changes it. This module
//! applies actions to events: to one event, to the pushes of an event that is only pushed, and to many
//! deliveries. Each transaction changes at most [`DELIVERIES_PER_TRANSACTION`] deliveries.

mod deliveries;
pub(crate) mod operator_actions;
pub(crate) mod replay_jobs;
pub(crate) mod replays;
mod retry_events;
pub(crate) mod subscriptions;

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

/// The number of deliveries that one transaction of an operator's action may change, whether the action
/// is on one event or on many.
pub(crate) const DELIVERIES_PER_TRANSACTION: usize = 500;

/// The number of deliveries that one bulk call may change.
pub(crate) const BULK_LIMIT: usize = 10_000;

/// The number of workers that the preview of a bulk reset may list.
const PREVIEW_WORKERS: usize = 100;

/// The number of events that the preview may list for each worker.
const PREVIEW_EVENTS: usize = 10;

/// The result of a bulk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOutcome {
    /// The number of events that were changed, or would have been in a dry run.
    pub count: usize,
    /// Whether more events may match.
    pub more: bool,
}

/// What a bulk reset would do.
#[derive(Debug)]
pub struct ResetPreview {
    pub outcome: BulkOutcome,
    /// At most `PREVIEW_WORKERS` workers, those with the most events first.
    pub holders: Vec<Holder>,
}

/// A worker, with the events that a bulk reset would take from it.
#[derive(Debug)]
pub struct Holder {
    pub worker_id: String,
    /// The number of events.
    pub events: usize,
    /// At most `PREVIEW_EVENTS` of the events, the lowest ids first.
    pub event_ids: Vec<EventId>,
}

impl Engine {
    /// PROCESSING → PENDING. Takes the event back from its worker.
    pub async fn reset_event(&self, scope: Scope, id: EventId, reason: String) -> Result<EventRow, Error> {
        self.operate_on(scope, id, OperatorAction::Reset { reason, of: ResetTarget::Any }).await
    }

    /// FAILED or CANCELLED → PENDING, with its counters reset.
    pub async fn retry_event(&self, scope: Scope, id: EventId, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(scope, id, OperatorAction::Retry { reason }).await
    }

    /// PENDING → CANCELLED. For an event that a worker holds, only a request is recorded.
    pub async fn cancel_event(&self, scope: Scope, id: EventId, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(scope, id, OperatorAction::Cancel { reason }).await
    }

    /// Resets every event whose lease has expired or, if `stale_for` is given, whose worker has given no
    /// sign of life for `stale_for` seconds.
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

    /// Returns what [`Engine::reset_stale`] would reset, and which workers hold it.
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

    /// Applies an action to an event that has more pushes than one transaction may change. If a later
    /// transaction fails, the error says that a part may have taken effect. The caller may repeat the
    /// request, which then continues with the remaining pushes.
    async fn operate_in_parts(
        &self,
        scope: &Scope,
        id: EventId,
        pushes: &[DeliveryId],
        action: &OperatorAction,
    ) -> Result<EventRow, Error> {
        let mut changed = 0;
        for (number, part) in pushes.chunks(DELIVERIES_PER_TRANSACTION).enumerate() {
            let operated = transaction!(self, |conn| {
                let mut changes = load(conn, scope, part).await?;
                if number == 0 {
                    begin_on_pushes(conn, id, action).await?;
                }
                let fitting = carry_out_all(&mut changes, action);
                Ok((fitting, changes.apply(conn).await?))
            });
            let (fitting, applied) = operated.map_err(|error| error_after(changed, error))?;
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

    /// Applies an action to the deliveries whose state it fits and skips the others. Returns the events
    /// of the changed deliveries.
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

/// Locks and loads deliveries, and finds out which of their subscriptions are deleted.
async fn load(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[DeliveryId]) -> Result<ChangeSet, Error> {
    let mut changes = ChangeSet::load(conn, scope, ids).await?;
    changes.find_orphans(conn).await?;
    Ok(changes)
}

/// Applies an action to the pushes of an event that is only pushed. The event has no work of its own; its
/// row follows from the state of its pushes.
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

/// Checks that an action fits the state of an event that is only pushed. Records a cancellation on the
/// row of the event. The row stays locked until the transaction ends. The pushes must be locked already:
/// every transaction locks pushes before their event, to avoid deadlocks.
async fn begin_on_pushes(conn: &mut AsyncPgConnection, id: EventId, action: &OperatorAction) -> Result<Status, Error> {
    let state = lock_rolled_up(conn, id).await?;
    action.check_rolled_up(id, &state)?;
    if let OperatorAction::Cancel { reason } = action {
        request_cancel(conn, id, reason.as_deref()).await?;
    }
    Ok(state.status.0)
}

/// Applies an action to the pushes of an event. Returns the number of pushes it was applied to.
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

/// Groups held deliveries by worker. The id of an event's own delivery is the id of the event.
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

/// Converts the error of a step before which `changed` events or deliveries were changed: if any were, the
/// response must not say that the request had no effect.
pub(crate) fn error_after(changed: usize, error: Error) -> Error {
    if changed == 0 { error } else { error.after_a_part() }
}
