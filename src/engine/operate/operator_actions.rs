//! What operators can do to a delivery, be it an event's own work or a push.

use chrono::TimeDelta;
use diesel_async::AsyncPgConnection;

use crate::domain::delivery::LogLine;
use crate::domain::ids::{DeliveryId, EventId};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::deliveries::Loaded;
use crate::store::tables::roll_ups::RolledUpState;

use crate::engine::change_set::{Applied, ChangeSet};

/// What a push must be to be sent again.
pub(crate) const SUBSCRIBED: &str = "for a subscription that is still there";

/// What an event must be to be brought back.
pub(crate) const RETRIABLE: &str = "FAILED or CANCELLED";

/// Which of the work that somebody holds a reset takes back.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResetTarget {
    /// Any: the operator has named it.
    Any,
    /// Work whose lease has run out, or whose worker has given no sign of life for this many
    /// seconds.
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

/// An operator's verb, applied to one delivery.
#[derive(Debug, Clone)]
pub(crate) enum OperatorAction {
    /// PROCESSING → PENDING.
    Reset { reason: String, of: ResetTarget },
    /// FAILED or CANCELLED → PENDING, counters fresh.
    Retry { reason: Option<String> },
    /// PENDING → CANCELLED; what somebody holds is marked; what was given up and keeps the rest of
    /// its key waiting lets go of it.
    Cancel { reason: Option<String> },
    /// PENDING → FAILED: a push is put with the dead letters.
    GiveUp { reason: String },
}

impl OperatorAction {
    /// Whether it fits where a delivery stands.
    pub fn check(&self, loaded: &Loaded) -> Result<(), Error> {
        use Status::{Cancelled, Completed, Failed, Pending, Processing};
        let status = loaded.delivery.status;
        let (fits, wanted) = match self {
            // Checked again under the lock: its worker may have given a sign of life meanwhile.
            OperatorAction::Reset { of, .. } => (status == Processing && of.includes(loaded), "PROCESSING"),
            OperatorAction::Retry { .. } if loaded.is_orphan => (false, SUBSCRIBED),
            OperatorAction::Retry { .. } => (matches!(status, Failed | Cancelled), RETRIABLE),
            OperatorAction::Cancel { .. } if status == Failed => (loaded.has_order_seq, "PENDING or PROCESSING"),
            // Cancelling twice is no mistake.
            OperatorAction::Cancel { .. } => {
                (matches!(status, Pending | Processing | Cancelled), "PENDING or PROCESSING")
            }
            OperatorAction::GiveUp { .. } => (status == Pending, "PENDING"),
        };
        // An event that nobody was to get has no work to bring back.
        let has_work = loaded.delivery.subscription_id.is_some() || !loaded.tags.is_empty() || status != Completed;
        if fits && has_work { Ok(()) } else { Err(wrong_state(loaded, wanted)) }
    }

    /// Whether it fits where an event stands that rolls up its pushes.
    pub fn check_rolled_up(&self, event_id: EventId, state: &RolledUpState) -> Result<(), Error> {
        use Status::{Cancelled, Failed, Pending};
        let status = state.status.0;
        let (fits, wanted) = match self {
            // Some of its pushes may have been brought back already, by a retry that was broken off.
            OperatorAction::Retry { .. } if status == Pending => {
                (state.failed_deliveries > 0 && !state.cancel_requested, RETRIABLE)
            }
            OperatorAction::Retry { .. } => (matches!(status, Failed | Cancelled), RETRIABLE),
            OperatorAction::Cancel { .. } => (matches!(status, Pending | Cancelled), "PENDING"),
            // No worker ever holds it.
            OperatorAction::Reset { .. } | OperatorAction::GiveUp { .. } => (false, "PROCESSING"),
        };
        if fits { Ok(()) } else { Err(Error::WrongState { what: "event", id: event_id.0, status, wanted }) }
    }

    /// All that it fits.
    pub fn fitting(&self, changes: &ChangeSet) -> Vec<DeliveryId> {
        changes.ids_where(|loaded| self.check(loaded).is_ok())
    }

    /// Carries it out on a delivery that it fits.
    pub fn carry_out(&self, changes: &mut ChangeSet, id: DeliveryId) {
        let Some(loaded) = changes.change(id) else { return };
        let now = loaded.now;
        let lines: Vec<LogLine> = match self {
            OperatorAction::Reset { reason, .. } => loaded.delivery.reset(reason, now),
            OperatorAction::Retry { reason } => {
                let line = loaded.delivery.retry(reason.as_deref(), now);
                loaded.forget_past_expiry();
                changes.send_to_tail(id);
                vec![line]
            }
            OperatorAction::Cancel { .. } if loaded.delivery.status == Status::Cancelled => Vec::new(),
            OperatorAction::Cancel { reason } => loaded.delivery.cancel(reason.as_deref()).into_iter().collect(),
            OperatorAction::GiveUp { reason } => {
                loaded.delivery.give_up(Some(reason));
                changes.move_to_dead_letters(id);
                Vec::new()
            }
        };
        changes.log_all(lines);
    }
}

/// Carries a verb out on one delivery: a push, or an event's own work. Either is unknown to
/// those who mean the other.
pub(crate) async fn operate_on_one(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: DeliveryId,
    is_push: bool,
    action: &OperatorAction,
) -> Result<Applied, Error> {
    let mut changes = ChangeSet::load(conn, scope, &[id]).await?;
    changes.find_orphans(conn).await?;
    let is_meant = |loaded: &&Loaded| loaded.delivery.subscription_id.is_some() == is_push;
    let unknown = || if is_push { Error::DeliveryNotFound(id) } else { Error::EventNotFound(EventId(id.0)) };
    action.check(changes.get(id).filter(is_meant).ok_or_else(unknown)?)?;
    action.carry_out(&mut changes, id);
    changes.apply(conn).await
}

fn wrong_state(loaded: &Loaded, wanted: &'static str) -> Error {
    let delivery = &loaded.delivery;
    match delivery.subscription_id {
        Some(_) => Error::WrongState { what: "delivery", id: delivery.id.0, status: delivery.status, wanted },
        None => Error::WrongState { what: "event", id: delivery.event_id.0, status: delivery.status, wanted },
    }
}
