//! The actions of operators on one delivery, which is an event's own work or a push.

use chrono::TimeDelta;
use diesel_async::AsyncPgConnection;

use crate::domain::delivery::LogLine;
use crate::domain::ids::{DeliveryId, DeliveryKey, EventId};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::deliveries::Loaded;
use crate::store::tables::roll_ups::RolledUpState;

use crate::engine::change_set::{Applied, ChangeSet};

/// The state in which a push can be retried.
pub(crate) const SUBSCRIBED: &str = "for a subscription that is still there";

/// The states in which a delivery can be retried.
pub(crate) const RETRIABLE: &str = "FAILED or CANCELLED";

/// The deliveries, among those that workers hold, that a reset takes back.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResetTarget {
    /// Any delivery, because the operator has named it.
    Any,
    /// Deliveries whose lease has expired, or whose worker has given no sign of life for
    /// `silent_seconds`.
    Stale { silent_seconds: Option<f64> },
}

impl ResetTarget {
    fn includes(self, loaded: &Loaded) -> bool {
        let ResetTarget::Stale { silent_seconds } = self else { return true };
        let has_expired = loaded.delivery.lease_expires_at.is_some_and(|at| at <= loaded.now);
        let is_silent =
            |seconds: f64| loaded.updated_at <= loaded.now - TimeDelta::microseconds((seconds * 1e6).round() as i64);
        has_expired || silent_seconds.is_some_and(is_silent)
    }
}

/// An action of an operator on one delivery.
#[derive(Debug, Clone)]
pub(crate) enum OperatorAction {
    /// PROCESSING → PENDING.
    Reset { reason: String, of: ResetTarget },
    /// FAILED or CANCELLED → PENDING, with its counters reset.
    Retry { reason: Option<String> },
    /// PENDING → CANCELLED. If a worker holds the delivery, only a request is recorded. A failed delivery
    /// that blocks its ordering key is cancelled too, which unblocks the key.
    Cancel { reason: Option<String> },
    /// PENDING → FAILED. The push becomes a dead letter.
    GiveUp { reason: String },
}

impl OperatorAction {
    /// Returns an error if the action does not fit the state of a delivery.
    pub(crate) fn check(&self, loaded: &Loaded) -> Result<(), Error> {
        use Status::{Cancelled, Completed, Failed, Pending, Processing};
        let status = loaded.delivery.status;
        let (fits, wanted) = match self {
            // Checked again under the row lock: the worker may have given a sign of life since the
            // delivery was found.
            OperatorAction::Reset { of, .. } => (status == Processing && of.includes(loaded), "PROCESSING"),
            OperatorAction::Retry { .. } if loaded.is_orphan => (false, SUBSCRIBED),
            OperatorAction::Retry { .. } => (matches!(status, Failed | Cancelled), RETRIABLE),
            OperatorAction::Cancel { .. } if status == Failed => (loaded.has_order_seq, "PENDING or PROCESSING"),
            // Cancelling twice is allowed.
            OperatorAction::Cancel { .. } => {
                (matches!(status, Pending | Processing | Cancelled), "PENDING or PROCESSING")
            }
            OperatorAction::GiveUp { .. } => (status == Pending, "PENDING"),
        };
        // An event without tags and subscribers is completed at once and has no work.
        let has_work = loaded.delivery.subscription_id.is_some() || !loaded.tags.is_empty() || status != Completed;
        if fits && has_work { Ok(()) } else { Err(wrong_state(loaded, wanted)) }
    }

    /// Returns an error if the action does not fit the state of an event that rolls up its pushes.
    pub(crate) fn check_rolled_up(&self, state: &RolledUpState) -> Result<(), Error> {
        use Status::{Cancelled, Failed, Pending};
        let status = state.status.0;
        let (fits, wanted) = match self {
            // A retry that was interrupted may have retried only some of the pushes.
            OperatorAction::Retry { .. } if status == Pending => {
                (state.failed_deliveries > 0 && !state.cancel_requested, RETRIABLE)
            }
            OperatorAction::Retry { .. } => (matches!(status, Failed | Cancelled), RETRIABLE),
            OperatorAction::Cancel { .. } => (matches!(status, Pending | Cancelled), "PENDING"),
            // A worker never holds an event that is only pushed.
            OperatorAction::Reset { .. } | OperatorAction::GiveUp { .. } => (false, "PROCESSING"),
        };
        if fits { Ok(()) } else { Err(Error::WrongState { what: "event", id: state.id.0, status, wanted }) }
    }

    /// Returns whether an action on an event that is only pushed changes one of its pushes.
    pub(crate) fn fits_push_of_event(&self, loaded: &Loaded) -> bool {
        match self {
            OperatorAction::Cancel { .. } => !loaded.delivery.status.is_finished(),
            _ => self.check(loaded).is_ok(),
        }
    }

    /// Applies the action to a delivery whose state it fits.
    pub(crate) fn carry_out(&self, changes: &mut ChangeSet, delivery: DeliveryKey) {
        let actor = changes.actor();
        let Some(loaded) = changes.change(delivery) else { return };
        let now = loaded.now;
        let lines: Vec<LogLine> = match self {
            OperatorAction::Reset { reason, .. } => loaded.delivery.reset(reason, now),
            OperatorAction::Retry { reason } => {
                let line = loaded.delivery.retry(reason.as_deref(), now);
                loaded.forget_past_expiry();
                changes.send_to_tail(delivery);
                vec![line]
            }
            OperatorAction::Cancel { .. } if loaded.delivery.status == Status::Cancelled => Vec::new(),
            OperatorAction::Cancel { reason } => {
                loaded.delivery.cancel(reason.as_deref(), actor.as_deref()).into_iter().collect()
            }
            OperatorAction::GiveUp { reason } => {
                loaded.delivery.give_up(Some(reason));
                changes.move_to_dead_letters(delivery);
                Vec::new()
            }
        };
        changes.log_all(lines);
    }
}

/// Applies an action to one delivery: to a push if `is_push` is set, otherwise to an event's own work. An id
/// of the other kind is reported as not found.
pub(crate) async fn operate_on_one(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: DeliveryId,
    is_push: bool,
    action: &OperatorAction,
) -> Result<Applied, Error> {
    let mut changes = ChangeSet::load(conn, scope, &[id]).await?;
    changes.find_orphans(conn).await?;
    let is_right_kind = |loaded: &&Loaded| loaded.delivery.subscription_id.is_some() == is_push;
    let not_found = || if is_push { Error::DeliveryNotFound(id) } else { Error::EventNotFound(EventId(id.0)) };
    let delivery = scope.namespace.delivery(id);
    action.check(changes.get(delivery).filter(is_right_kind).ok_or_else(not_found)?)?;
    action.carry_out(&mut changes, delivery);
    changes.apply(conn).await
}

fn wrong_state(loaded: &Loaded, wanted: &'static str) -> Error {
    let delivery = &loaded.delivery;
    match delivery.subscription_id {
        Some(_) => Error::WrongState { what: "delivery", id: delivery.id.0, status: delivery.status, wanted },
        None => Error::WrongState { what: "event", id: delivery.event_id.0, status: delivery.status, wanted },
    }
}
