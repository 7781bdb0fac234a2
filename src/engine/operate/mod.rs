//! Operators reset, retry and cancel events and pushes, replay dead letters, and manage subscriptions, sources and event
//! types.
//!
//! An [`OperatorAction`] decides whether it fits the state of a delivery, and changes it. This module
//! applies actions to one event, or to the pushes of an event that is only pushed. [`operations`] applies
//! them to many rows, in the background. Each transaction changes at most [`DELIVERIES_PER_TRANSACTION`]
//! deliveries.

mod deliveries;
pub(crate) mod event_types;
pub(crate) mod key_rotation;
pub mod operations;
pub(crate) mod operator_actions;
pub mod replays;
pub(crate) mod sources;
pub(crate) mod subscriptions;

use diesel_async::AsyncPgConnection;

use crate::domain::ids::{DeliveryId, EventId};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::events::{EventDetails, get_event_details};
use crate::store::tables::roll_ups::{find_rolled_up, lock_rolled_up, request_cancel};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::operate::operator_actions::{OperatorAction, RETRIABLE, ResetTarget, SUBSCRIBED, operate_on_one};
use crate::engine::{Engine, transaction};

/// The number of deliveries that one transaction of an operator's action may change, whether the action
/// is on one event or on many.
pub(crate) const DELIVERIES_PER_TRANSACTION: usize = 500;

impl Engine {
    /// PROCESSING → PENDING. Takes the event back from its worker.
    pub async fn reset_event(&self, scope: Scope, id: EventId, reason: String) -> Result<EventDetails, Error> {
        self.operate_on(scope, id, OperatorAction::Reset { reason, of: ResetTarget::Any }).await
    }

    /// FAILED or CANCELLED → PENDING, with its counters reset.
    pub async fn retry_event(&self, scope: Scope, id: EventId, reason: Option<String>) -> Result<EventDetails, Error> {
        self.operate_on(scope, id, OperatorAction::Retry { reason }).await
    }

    /// PENDING → CANCELLED. For an event that a worker holds, only a request is recorded.
    pub async fn cancel_event(&self, scope: Scope, id: EventId, reason: Option<String>) -> Result<EventDetails, Error> {
        self.operate_on(scope, id, OperatorAction::Cancel { reason }).await
    }

    async fn operate_on(&self, scope: Scope, id: EventId, action: OperatorAction) -> Result<EventDetails, Error> {
        let engine = self.clone();
        self.detached(async move {
            let done = transaction!(engine, |conn| {
                let applied = match find_rolled_up(conn, &scope, id).await? {
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
    ) -> Result<EventDetails, Error> {
        let mut changed = 0;
        for (number, part) in pushes.chunks(DELIVERIES_PER_TRANSACTION).enumerate() {
            let operated = transaction!(self, |conn| {
                let mut changes = load(conn, scope, part).await?;
                if number == 0 {
                    begin_on_pushes(conn, scope, id, action).await?;
                }
                let fitting = carry_out_all(&mut changes, action);
                Ok((fitting, changes.apply(conn).await?))
            });
            let (fitting, applied) = operated.map_err(|error| error_after(changed, error))?;
            self.notify_after_commit(&applied);
            changed += fitting;
        }
        let event =
            transaction!(self, |conn| read_back(conn, scope, id).await).map_err(|error| error_after(changed, error))?;
        if changed == 0 && matches!(action, OperatorAction::Retry { .. }) {
            return Err(nothing_to_retry(id, event.row.work.status.0));
        }
        Ok(event)
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
    let status = begin_on_pushes(conn, scope, id, action).await?;
    if carry_out_all(&mut changes, action) == 0 && matches!(action, OperatorAction::Retry { .. }) {
        return Err(nothing_to_retry(id, status));
    }
    changes.apply(conn).await
}

/// Checks that an action fits the state of an event that is only pushed. Records a cancellation on the
/// row of the event. The row stays locked until the transaction ends. The pushes must be locked already:
/// every transaction locks pushes before their event, to avoid deadlocks.
async fn begin_on_pushes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: EventId,
    action: &OperatorAction,
) -> Result<Status, Error> {
    let state = lock_rolled_up(conn, scope, &[id]).await?.pop().ok_or(Error::EventNotFound(id))?;
    action.check_rolled_up(&state)?;
    if let OperatorAction::Cancel { reason } = action {
        request_cancel(conn, scope, &[id], reason.as_deref()).await?;
    }
    Ok(state.status.0)
}

/// Applies an action to the pushes of an event. Returns the number of pushes it was applied to.
fn carry_out_all(changes: &mut ChangeSet, action: &OperatorAction) -> usize {
    let fitting = changes.keys_where(|loaded| action.fits_push_of_event(loaded));
    for push in &fitting {
        action.carry_out(changes, *push);
    }
    fitting.len()
}

fn nothing_to_retry(id: EventId, status: Status) -> Error {
    let wanted = if status == Status::Pending { RETRIABLE } else { SUBSCRIBED };
    Error::WrongState { what: "event", id: id.0, status, wanted }
}

async fn read_back(conn: &mut AsyncPgConnection, scope: &Scope, id: EventId) -> Result<EventDetails, Error> {
    get_event_details(conn, scope, id).await?.ok_or(Error::EventNotFound(id))
}

/// Converts the error of a transaction before which `changed` deliveries were changed: if any were, the
/// response must not say that the request had no effect.
fn error_after(changed: usize, error: Error) -> Error {
    if changed == 0 { error } else { error.after_a_part() }
}
