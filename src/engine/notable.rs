//! What operators want to know of a change: it is counted in the metrics, and a line is written about it.
//!
//! The lines name the event and the worker, never what they carry: neither a payload nor the text of an error, which may
//! quote it. There is one line for each change as long as there are few ([`crate::logging::limiter`]).

use crate::domain::action::Action;
use crate::domain::actor::ServerActor;
use crate::logging::limiter::Kind;
use crate::store::tables::event_log::LogEntry;

use crate::engine::Engine;
use crate::engine::change_set::Applied;
use crate::engine::stats::CountedChange;

impl Engine {
    /// Counts the changes of a transaction, and logs those that are notable. Call it after the commit.
    pub(super) fn note_changes(&self, applied: &Applied) {
        for (change, entry) in applied.counted.iter().zip(&applied.entries) {
            let is_reaped = entry.actor.as_deref() == Some(ServerActor::LeaseReaper.as_str());
            self.count_change(change, is_reaped);
            if let Some((kind, text)) = line_about(change, entry, is_reaped)
                && kind.is_due()
            {
                write_line(change, entry, text);
            }
        }
    }

    fn count_change(&self, change: &CountedChange, is_reaped: bool) {
        let counters = &self.metrics().changes;
        match (change.action, change.is_push) {
            (Action::Failed, false) if change.is_retried => drop(counters.events_retried.inc()),
            (Action::Failed, false) if change.is_cancelled => {}
            (Action::Failed, false) => {
                counters.events_failed.inc();
                counters.events_poisoned.inc_by(u64::from(is_reaped));
            }
            (Action::Reset, is_push) => {
                counters.events_reset.inc_by(u64::from(!is_push));
                counters.leases_expired.inc_by(u64::from(is_reaped));
            }
            (Action::Expired, false) => drop(counters.events_expired.inc()),
            _ => {}
        }
    }
}

/// Returns the line about a change, if it is notable. What a push has come to is in the line about its attempt.
fn line_about(change: &CountedChange, entry: &LogEntry, is_reaped: bool) -> Option<(Kind, &'static str)> {
    match (change.action, change.is_push) {
        (Action::Failed, false) if change.is_retried => Some((Kind::RetryScheduled, "a retry was scheduled")),
        // A failure is how a worker gives an event back that an operator has cancelled meanwhile.
        (Action::Failed, false) if change.is_cancelled => {
            Some((Kind::EventCancelled, "an event was cancelled, as requested while a worker held it"))
        }
        (Action::Failed, false) if is_reaped => Some((Kind::EventPoisoned, "an event was given up as poison")),
        (Action::Failed, false) => Some((Kind::EventFailed, "an event has failed for good")),
        (Action::Reset, _) if is_reaped => Some((Kind::LeaseExpired, "a lease expired, and its work was reset")),
        (Action::Expired, false) => Some((Kind::EventExpired, "an event expired before it was claimed")),
        (Action::DeadLettered, _) if entry.actor.as_deref() != Some(ServerActor::Dispatcher.as_str()) => {
            Some((Kind::DeadLetter, "a push became a dead letter"))
        }
        _ => None,
    }
}

fn write_line(change: &CountedChange, entry: &LogEntry, text: &'static str) {
    let next_attempt_at = entry.next_retry_at.map(|at| at.to_rfc3339()).unwrap_or_default();
    log::info!(
        namespace_id = change.event.namespace,
        event_id = entry.event_id,
        delivery_id = entry.delivery_id.map_or(entry.event_id.0, |id| id.0),
        lease_id = entry.lease_id,
        worker_id = entry.worker_id.as_deref().unwrap_or_default(),
        actor = entry.actor.as_deref().unwrap_or_default(),
        attempt = entry.attempt,
        next_attempt_at = next_attempt_at.as_str();
        "{text}"
    );
}
