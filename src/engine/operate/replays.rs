//! Replays of single dead letters.
//!
//! A replay makes the delivery of a dead letter PENDING again and closes the dead letter, in one
//! transaction. The delivery refers to the dead letter, from which the dispatcher reads how to send the
//! push. The payload is the one of the dead letter, unless an operator edited it. The configuration is
//! that of the present subscription, or that of the subscription when the push was abandoned.
//!
//! The event may have been removed because of its age, and its deliveries with it. A dead letter has a copy of
//! all that is needed, so they are made again first, as they were when the push was abandoned.

use diesel_async::AsyncPgConnection;

use crate::domain::dead_letter::{ReplayConfig, new_webhook_id};
use crate::domain::ids::{DeliveryId, NamespaceId};
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::domain::subscription::SubscriptionSpec;
use crate::error::{Error, OutageKind};
use crate::store::lists::dead_letters::{
    DeadLetterRow, WholeDeadLetter, find_dead_letters, get_dead_letter, lock_dead_letters,
};
use crate::store::tables::dead_letters::{self, ReplayRow, ReplayTerms, lock_keys_of_dead_letters, restore_pushes};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::{Engine, transaction};

/// The parts of a push that a dead letter overrides. Without an override, the event and the subscription
/// provide them.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    pub spec: Option<SubscriptionSpec>,
    /// The version of the subscription that `spec` comes from.
    pub subscription_version: Option<i32>,
    pub payload: Option<RawJson>,
    /// The id by which the receiver recognises the message.
    pub webhook_id: Option<String>,
}

/// How an operator wants a dead letter to be replayed.
#[derive(Debug, Clone)]
pub struct ReplayOrder {
    /// Why the operator replays it.
    pub reason: Option<String>,
    pub config: ReplayConfig,
    /// The edited payload, if it was edited.
    pub payload: Option<RawJson>,
    /// Whether the receiver is to treat the replay as a new message.
    pub new_webhook_id: bool,
}

impl ReplayOrder {
    fn terms(&self, letter: &DeadLetterRow, webhook_id: Option<String>) -> ReplayTerms {
        ReplayTerms { dead_letter_id: letter.id, config: self.config, payload: self.payload.clone(), webhook_id }
    }
}

impl Engine {
    /// Replays a dead letter.
    pub async fn replay_dead_letter(
        &self,
        scope: Scope,
        id: i64,
        order: ReplayOrder,
    ) -> Result<WholeDeadLetter, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (letter, applied) = transaction!(engine, |conn| {
                let found = find(conn, &scope, id).await?;
                let mut changes = load_pushes(conn, &scope, &[found]).await?;
                // A transaction that closes a dead letter holds the lock of its delivery. This one holds it
                // only now, so the dead letter is read again.
                let letter = find(conn, &scope, id).await?;
                let webhook_id = match order.new_webhook_id {
                    // The id contains the present epoch, not the event's: the receiver may have seen a replay
                    // that a restore of the database has lost.
                    true => Some(new_webhook_id(&engine.epoch()?, letter.event_id, id)),
                    false => None,
                };
                replay(&mut changes, &scope, &letter, &order, webhook_id)?;
                let applied = changes.apply(conn).await?;
                let letter = get_dead_letter(conn, &scope, id).await?;
                Ok((letter.ok_or(Error::DeadLetterNotFound(id))?, applied))
            })?;
            engine.notify_after_commit(&applied);
            Ok(letter)
        })
        .await
    }

    /// Returns what a dead letter overrides in its replay. If the dead letter has been deleted, nothing is
    /// overridden and the push is sent like any other.
    pub async fn load_replay(&self, namespace: NamespaceId, dead_letter_id: i64) -> Result<Replay, Error> {
        let mut conn = self.database().connection().await?;
        let row = dead_letters::load_replay(&mut conn, &self.scope_of(namespace), dead_letter_id).await?;
        row.map_or_else(|| Ok(Replay::default()), |row| read_replay(dead_letter_id, row))
    }
}

async fn find(conn: &mut AsyncPgConnection, scope: &Scope, id: i64) -> Result<DeadLetterRow, Error> {
    find_dead_letters(conn, scope, &[id]).await?.pop().ok_or(Error::DeadLetterNotFound(id))
}

/// Replays many dead letters. Returns the number that were replayed.
pub(crate) async fn replay_many(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: &[i64],
    order: &ReplayOrder,
) -> Result<(usize, Applied), Error> {
    let found = find_dead_letters(conn, scope, ids).await?;
    let mut changes = load_pushes(conn, scope, &found).await?;
    // Reads the dead letters again: only now are they and their deliveries locked.
    let letters = find_dead_letters(conn, scope, ids).await?;
    let replayed = letters.iter().filter(|letter| replay(&mut changes, scope, letter, order, None).is_ok()).count();
    Ok((replayed, changes.apply(conn).await?))
}

/// Locks and loads the pushes of dead letters, with their subscriptions. Pushes that were removed are made again. The
/// dead letters are locked as well, those of removed pushes first: one that is deleted meanwhile could not say how its
/// push is to be sent.
async fn load_pushes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    letters: &[DeadLetterRow],
) -> Result<ChangeSet, Error> {
    let ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
    let deliveries: Vec<DeliveryId> = letters.iter().map(|letter| letter.delivery_id).collect();
    let any_left = lock_keys_of_dead_letters(conn, scope, &ids).await?;
    if any_left {
        restore_pushes(conn, scope, &ids).await?;
    }
    let mut changes = ChangeSet::load(conn, scope, &deliveries).await?;
    let is_missing = |letter: &DeadLetterRow| {
        letter.replayed_at.is_none() && changes.get(scope.namespace.delivery(letter.delivery_id)).is_none()
    };
    if !any_left && letters.iter().any(is_missing) {
        // Removed a moment ago. The transaction runs again and makes it again.
        return Err(Error::outage(OutageKind::Conflict, "a push that is to be replayed was just removed"));
    }
    changes.find_orphans(conn).await?;
    lock_dead_letters(conn, scope, &ids).await?;
    Ok(changes)
}

/// FAILED or CANCELLED → PENDING, for the delivery of a dead letter. The delivery, if it still exists, must
/// be locked.
fn replay(
    changes: &mut ChangeSet,
    scope: &Scope,
    letter: &DeadLetterRow,
    order: &ReplayOrder,
    webhook_id: Option<String>,
) -> Result<(), Error> {
    let push = scope.namespace.delivery(letter.delivery_id);
    let refused = |why| Error::NotReplayable { id: letter.id, why };
    if letter.replayed_at.is_some() {
        return Err(refused("it was already replayed"));
    }
    // A push that was removed is made again, unless its subscription was deleted.
    let Some(loaded) = changes.get(push).filter(|loaded| !loaded.is_orphan) else {
        return Err(refused("its subscription was deleted"));
    };
    if !matches!(loaded.delivery.status, Status::Failed | Status::Cancelled) {
        return Err(refused("its delivery is not finished"));
    }
    let Some(loaded) = changes.change(push) else { return Ok(()) };
    let line = loaded.delivery.replay(order.reason.as_deref(), loaded.now);
    loaded.forget_past_expiry();
    changes.send_to_tail(push);
    changes.log(line);
    changes.replay(push, order.terms(letter, webhook_id));
    Ok(())
}

fn read_replay(id: i64, row: ReplayRow) -> Result<Replay, Error> {
    let is_original = ReplayConfig::parse(&row.replay_config) == Some(ReplayConfig::Original);
    let unreadable = || Error::Internal(format!("the subscription of dead letter {id} cannot be read"));
    let read = || SubscriptionSpec::from_stored(&row.subscription.0).ok_or_else(unreadable);
    let spec = is_original.then(read).transpose()?;
    Ok(Replay {
        spec,
        subscription_version: is_original.then_some(row.subscription_version),
        payload: Some(row.payload.0),
        webhook_id: row.replay_webhook_id,
    })
}
