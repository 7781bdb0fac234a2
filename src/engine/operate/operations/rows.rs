//! Steps of operations on pushes and on dead letters.

use diesel_async::AsyncPgConnection;

use crate::domain::ids::DeliveryId;
use crate::error::Error;
use crate::store::tables::operations::Progress;

use crate::engine::change_set::Applied;
use crate::engine::operate::load;
use crate::engine::operate::operations::step::{First, Step};
use crate::engine::operate::operator_actions::OperatorAction;
use crate::engine::operate::replays::{ReplayOrder, replay_many};

/// Applies an action to the next pushes.
pub(super) async fn change_deliveries(
    conn: &mut AsyncPgConnection,
    step: &Step<'_>,
    action: &OperatorAction,
    first: &mut Option<First>,
) -> Result<(Progress, Applied), Error> {
    let found = step.find(conn).await?;
    *first = First::of(&found.ids);
    let ids: Vec<DeliveryId> = found.ids.iter().copied().map(DeliveryId).collect();
    let mut changes = load(conn, &step.scope, &ids).await?;
    let fitting = changes.keys_where(|loaded| step.still_matches(loaded) && action.check(loaded).is_ok());
    for push in &fitting {
        action.carry_out(&mut changes, *push);
    }
    let applied = changes.apply(conn).await?;
    Ok((counted(step.progress_to(found.next), ids.len(), fitting.len()), applied))
}

/// Replays the next dead letters.
pub(super) async fn replay_dead_letters(
    conn: &mut AsyncPgConnection,
    step: &Step<'_>,
    order: &ReplayOrder,
    first: &mut Option<First>,
) -> Result<(Progress, Applied), Error> {
    let found = step.find(conn).await?;
    *first = First::of(&found.ids);
    let (replayed, applied) = replay_many(conn, &step.scope, &found.ids, order).await?;
    Ok((counted(step.progress_to(found.next), found.ids.len(), replayed), applied))
}

fn counted(progress: Progress, handled: usize, done: usize) -> Progress {
    Progress { handled: handled as i64, done: done as i64, skipped: (handled - done) as i64, ..progress }
}
