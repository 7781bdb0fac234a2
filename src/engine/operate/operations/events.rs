//! Steps of operations on events.
//!
//! The limit of a step counts deliveries: an event that is only pushed has one delivery per subscription that
//! matched it. Such an event is changed as a whole and counted once, but in as many steps as it needs. Once
//! its first push is changed the event may no longer match the filter, so the operation remembers which event
//! it has begun, and how far it has come.

use std::collections::BTreeSet;

use diesel_async::AsyncPgConnection;

use crate::domain::ids::{DeliveryId, EventId};
use crate::error::Error;
use crate::store::lists::candidates::Candidates;
use crate::store::tables::operations::{Part, Progress};
use crate::store::tables::roll_ups::{EventWork, RolledUpState, lock_rolled_up, read_work_of_events, request_cancel};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::operate::load;
use crate::engine::operate::operations::step::{First, Step};
use crate::engine::operate::operator_actions::OperatorAction;

/// The deliveries that one step deals with.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    /// The number of events, from the first on, that the step deals with to their end.
    whole: usize,
    work: Vec<EventWork>,
    /// Whether `work` is a part of one event, the one after the `whole` ones.
    is_part: bool,
}

/// Applies an action to the next events.
pub(super) async fn change_events(
    conn: &mut AsyncPgConnection,
    step: &Step<'_>,
    action: &OperatorAction,
    first: &mut Option<First>,
) -> Result<(Progress, Applied), Error> {
    let begun = begun_event(step);
    let found = match begun {
        Some(part) => Candidates { ids: vec![part.event_id], next: Some(part.event_id) },
        None => step.find(conn).await?,
    };
    *first = First::of(&found.ids);
    let event_ids: Vec<EventId> = found.ids.into_iter().map(EventId).collect();
    let after = DeliveryId(begun.map_or(0, |part| part.last_id));
    let rows = step.limit + 1;
    let read =
        read_work_of_events(conn, &step.scope, &event_ids, after, statuses_of_pushes(action), rows as i64).await?;
    let batch = compose(&event_ids, read, step.limit);
    if let Some(push) = batch.work.first().filter(|row| row.is_rolled_up) {
        *first = Some(First { id: push.event_id.0, push: Some(push.id) });
    }
    let (changed, applied) = change_batch(conn, step, action, begun, &batch.work).await?;
    Ok((progress(step, begun, &event_ids, found.next, &batch, &changed), applied))
}

fn begun_event(step: &Step<'_>) -> Option<Part> {
    let operation = step.operation;
    let (event_id, last_id) = operation.part_of.zip(operation.part_last_id)?;
    Some(Part { event_id, last_id, is_changed: operation.part_is_changed, has_failed: operation.part_has_failed })
}

/// Returns the states of the pushes that an action on their event may change.
fn statuses_of_pushes(action: &OperatorAction) -> &'static [&'static str] {
    match action {
        OperatorAction::Retry { .. } => &["FAILED", "CANCELLED"],
        OperatorAction::Cancel { .. } => &["PENDING", "PROCESSING"],
        OperatorAction::Reset { .. } | OperatorAction::GiveUp { .. } => &[],
    }
}

/// Chooses what one step deals with: as many whole events as fit, or a part of the first. `read` is in the
/// order of the events, and has more than `limit` rows if not all of them were read.
fn compose(ids: &[EventId], mut read: Vec<EventWork>, limit: usize) -> Batch {
    let Some(cut) = read.get(limit).map(|row| row.event_id) else {
        return Batch { whole: ids.len(), work: read, is_part: false };
    };
    let whole = ids.iter().position(|id| *id == cut).unwrap_or(0);
    let is_part = read.first().is_some_and(|row| row.event_id == cut);
    match is_part {
        true => read.truncate(limit),
        false => read.retain(|row| row.event_id != cut),
    }
    Batch { whole, work: read, is_part }
}

/// The outcome of a step for its events.
struct Changed {
    /// The events that the action was applied to.
    events: BTreeSet<EventId>,
    /// The events that are only pushed and that no longer fit.
    refused: BTreeSet<EventId>,
}

/// Locks deliveries and applies the action to those that still fit.
async fn change_batch(
    conn: &mut AsyncPgConnection,
    step: &Step<'_>,
    action: &OperatorAction,
    begun: Option<Part>,
    work: &[EventWork],
) -> Result<(Changed, Applied), Error> {
    let ids: Vec<DeliveryId> = work.iter().map(|row| row.id).collect();
    let mut changes = load(conn, &step.scope, &ids).await?;
    let (accepted, refused) = begin_on_pushes(conn, step, action, begun, work).await?;
    let mut events = BTreeSet::new();
    if matches!(action, OperatorAction::Cancel { .. }) {
        events.extend(accepted.iter().copied());
    }
    for row in work {
        if fits(&changes, step, action, &accepted, row) {
            action.carry_out(&mut changes, step.scope.namespace.delivery(row.id));
            events.insert(row.event_id);
        }
    }
    Ok((Changed { events, refused }, changes.apply(conn).await?))
}

fn fits(
    changes: &ChangeSet,
    step: &Step<'_>,
    action: &OperatorAction,
    accepted: &BTreeSet<EventId>,
    row: &EventWork,
) -> bool {
    let Some(loaded) = changes.get(step.scope.namespace.delivery(row.id)) else { return false };
    match row.is_rolled_up {
        true => accepted.contains(&row.event_id) && action.fits_push_of_event(loaded),
        false => step.still_matches(loaded) && action.check(loaded).is_ok(),
    }
}

/// Locks the events that are only pushed, and records a cancellation on those that it fits. Returns the events
/// that the action fits, and those that it does not. Their pushes must be locked already: every transaction
/// locks pushes before their event, to avoid deadlocks.
async fn begin_on_pushes(
    conn: &mut AsyncPgConnection,
    step: &Step<'_>,
    action: &OperatorAction,
    begun: Option<Part>,
    work: &[EventWork],
) -> Result<(BTreeSet<EventId>, BTreeSet<EventId>), Error> {
    let rolled_up: BTreeSet<EventId> = work.iter().filter(|row| row.is_rolled_up).map(|row| row.event_id).collect();
    if rolled_up.is_empty() {
        return Ok((BTreeSet::new(), BTreeSet::new()));
    }
    let states = lock_rolled_up(conn, &step.scope, &rolled_up.iter().copied().collect::<Vec<_>>()).await?;
    // As long as nothing of an event was changed, it must fit like any other.
    let is_begun = |id: EventId| begun.is_some_and(|part| part.event_id == id.0 && part.is_changed);
    let accepted: BTreeSet<EventId> =
        states.iter().filter(|state| accepts(step, action, state, is_begun(state.id))).map(|state| state.id).collect();
    if let OperatorAction::Cancel { reason } = action {
        let new: Vec<EventId> = accepted.iter().copied().filter(|id| !is_begun(*id)).collect();
        request_cancel(conn, &step.scope, &new, reason.as_deref()).await?;
    }
    let refused = rolled_up.difference(&accepted).copied().collect();
    Ok((accepted, refused))
}

fn accepts(step: &Step<'_>, action: &OperatorAction, state: &RolledUpState, is_begun: bool) -> bool {
    match action {
        // The state of an event that was begun follows from its pushes. Only an operator's cancellation in
        // between ends a retry.
        OperatorAction::Retry { .. } if is_begun => !state.cancel_requested,
        _ if is_begun => true,
        _ => step.statuses.contains(&state.status.0) && action.check_rolled_up(state).is_ok(),
    }
}

/// Counts the events that the step dealt with to their end, and notes the event that it has begun.
fn progress(
    step: &Step<'_>,
    begun: Option<Part>,
    ids: &[EventId],
    next: Option<i64>,
    batch: &Batch,
    changed: &Changed,
) -> Progress {
    let was_changed = |id: EventId| begun.is_some_and(|part| part.event_id == id.0 && part.is_changed);
    let is_changed = |id: EventId| changed.events.contains(&id) || was_changed(id);
    let last_push = batch.work.last().filter(|_| batch.is_part);
    // Of an event that no longer fits, the other pushes are left alone too.
    let goes_on = last_push.filter(|push| !changed.refused.contains(&push.event_id));
    let ended = if last_push.is_some() && goes_on.is_none() { batch.whole + 1 } else { batch.whole };
    let has_failed = |id: EventId| begun.is_some_and(|part| part.event_id == id.0 && part.has_failed);
    let failed = ids[..ended].iter().filter(|id| has_failed(**id)).count();
    let done = ids[..ended].iter().filter(|id| is_changed(**id) && !has_failed(**id)).count();
    let last_ended = ids[..ended].last().map_or(step.operation.last_id, |id| id.0);
    let reached = match ended == ids.len() {
        true => step.progress_to(next),
        false => Progress { last_id: last_ended, ..Progress::default() },
    };
    Progress {
        handled: batch.work.len() as i64,
        done: done as i64,
        skipped: (ended - done - failed) as i64,
        failed: failed as i64,
        part: goes_on.map(|push| Part {
            event_id: push.event_id.0,
            last_id: push.id.0,
            is_changed: is_changed(push.event_id),
            has_failed: has_failed(push.event_id),
        }),
        ..reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[i64]) -> Vec<EventId> {
        numbers.iter().copied().map(EventId).collect()
    }

    fn work(pairs: &[(i64, i64)]) -> Vec<EventWork> {
        let row = |&(event, id)| EventWork { event_id: EventId(event), id: DeliveryId(id), is_rolled_up: true };
        pairs.iter().map(row).collect()
    }

    #[test]
    fn a_step_takes_all_events_whose_deliveries_fit() {
        let read = work(&[(1, 11), (1, 12), (3, 31)]);
        let batch = compose(&ids(&[1, 2, 3]), read.clone(), 3);
        assert_eq!(batch, Batch { whole: 3, work: read, is_part: false });
    }

    #[test]
    fn an_event_that_does_not_fit_beside_others_is_left_to_the_next_step() {
        let batch = compose(&ids(&[1, 2, 3]), work(&[(1, 11), (3, 31), (3, 32), (3, 33)]), 3);
        assert_eq!(batch, Batch { whole: 2, work: work(&[(1, 11)]), is_part: false });
    }

    #[test]
    fn an_event_that_does_not_fit_into_one_step_is_taken_in_parts() {
        let batch = compose(&ids(&[2, 3]), work(&[(3, 31), (3, 32), (3, 33)]), 2);
        assert_eq!(batch, Batch { whole: 1, work: work(&[(3, 31), (3, 32)]), is_part: true });
    }
}
