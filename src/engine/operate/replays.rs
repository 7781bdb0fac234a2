//! Dead letters are sent again, one by one.
//!
//! A replay brings the delivery of a dead letter back to life, in the transaction in which the
//! dead letter is done with. The delivery remembers the dead letter, and the dispatcher asks it
//! how to send: what is sent is what was given up, unless it was edited, and the subscription is
//! the present one or the one of that time.

use diesel_async::AsyncPgConnection;

use crate::domain::dead_letter::{ReplayConfig, new_webhook_id};
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::domain::subscription::SubscriptionSpec;
use crate::error::Error;
use crate::store::lists::dead_letters::{DeadLetterRow, WholeDeadLetter, find_dead_letters, get_dead_letter};
use crate::store::tables::dead_letters::{self, ReplayRow, ReplayTerms};

use crate::engine::change_set::ChangeSet;
use crate::engine::{Engine, transaction};

/// What of a push is as a dead letter has it, and not as the event and the subscription do.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// How it is sent.
    pub spec: Option<SubscriptionSpec>,
    /// The version of the subscription that is.
    pub subscription_version: Option<i32>,
    /// What is sent.
    pub payload: Option<RawJson>,
    /// What the receiver knows it by.
    pub webhook_id: Option<String>,
}

/// How somebody wants a dead letter sent again.
#[derive(Debug, Clone)]
pub struct ReplayOrder {
    /// By which configuration.
    pub config: ReplayConfig,
    /// Another body, if it was edited.
    pub payload: Option<RawJson>,
    /// Whether the receiver is to take it for something new.
    pub new_webhook_id: bool,
}

impl ReplayOrder {
    fn terms(&self, letter: &DeadLetterRow, by: String, webhook_id: Option<String>) -> ReplayTerms {
        ReplayTerms { dead_letter_id: letter.id, by, config: self.config, payload: self.payload.clone(), webhook_id }
    }
}

impl Engine {
    /// Sends a dead letter again.
    pub async fn replay_dead_letter(
        &self,
        scope: Scope,
        id: i64,
        order: ReplayOrder,
    ) -> Result<WholeDeadLetter, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (letter, applied) = transaction!(engine, |conn| {
                let delivery_id = find(conn, &scope, id).await?.delivery_id;
                let mut changes = ChangeSet::load(conn, &scope, &[delivery_id]).await?;
                changes.find_orphans(conn).await?;
                // Whoever is done with a dead letter holds its delivery's lock. Now we do: look again.
                let letter = find(conn, &scope, id).await?;
                let webhook_id = match order.new_webhook_id {
                    // In the present epoch, not the event's: a replay that was lost in a restore may have been seen.
                    true => Some(new_webhook_id(&engine.epoch()?, letter.event_id, id)),
                    false => None,
                };
                replay(&mut changes, &letter, &order, webhook_id)?;
                let applied = changes.apply(conn).await?;
                let letter = get_dead_letter(conn, &scope, id).await?;
                Ok((letter.ok_or(Error::DeadLetterNotFound(id))?, applied))
            })?;
            engine.notify_after_commit(&applied);
            Ok(letter)
        })
        .await
    }

    /// What a dead letter says of how it is sent again. One that has been forgotten says nothing:
    /// the push then goes as any other.
    pub async fn load_replay(&self, dead_letter_id: i64) -> Result<Replay, Error> {
        let mut conn = self.database().connection().await?;
        let row = dead_letters::load_replay(&mut conn, dead_letter_id).await?;
        row.map_or_else(|| Ok(Replay::default()), |row| read_replay(dead_letter_id, row))
    }
}

async fn find(conn: &mut AsyncPgConnection, scope: &Scope, id: i64) -> Result<DeadLetterRow, Error> {
    find_dead_letters(conn, scope, &[id]).await?.pop().ok_or(Error::DeadLetterNotFound(id))
}

/// Brings the deliveries of many dead letters back to life; answers how many could not be. Those
/// that somebody else was done with meanwhile count as neither.
pub(crate) async fn replay_many(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    changes: &mut ChangeSet,
    ids: &[i64],
    order: &ReplayOrder,
) -> Result<(i64, i64), Error> {
    changes.find_orphans(conn).await?;
    let (mut replayed, mut skipped) = (0, 0);
    for letter in find_dead_letters(conn, scope, ids).await? {
        if letter.replayed_at.is_some() {
            continue;
        }
        match replay(changes, &letter, order, None) {
            Ok(()) => replayed += 1,
            Err(_) => skipped += 1,
        }
    }
    Ok((replayed, skipped))
}

/// FAILED or CANCELLED → PENDING, from the dead letters. Its delivery is locked, if it is there.
fn replay(
    changes: &mut ChangeSet,
    letter: &DeadLetterRow,
    order: &ReplayOrder,
    webhook_id: Option<String>,
) -> Result<(), Error> {
    let id = letter.delivery_id;
    let refused = |why| Error::NotReplayable { id: letter.id, why };
    if letter.replayed_at.is_some() {
        return Err(refused("it was sent again already"));
    }
    let Some(loaded) = changes.get(id) else { return Err(refused("its delivery is gone")) };
    if loaded.is_orphan {
        return Err(refused("its subscription is gone"));
    }
    if !matches!(loaded.delivery.status, Status::Failed | Status::Cancelled) {
        return Err(refused("its delivery is alive"));
    }
    let by = changes.actor().to_owned();
    let Some(loaded) = changes.change(id) else { return Ok(()) };
    let line = loaded.delivery.replay(Some(&by), loaded.now);
    loaded.forget_past_expiry();
    changes.send_to_tail(id);
    changes.log(line);
    changes.replay(id, order.terms(letter, by, webhook_id));
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
