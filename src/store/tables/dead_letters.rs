//! Dead letters: abandoned pushes, with snapshots of the event, the subscription and the attempts.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::dead_letter::ReplayConfig;
use crate::domain::ids::DeliveryKey;
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::events::LARGE_PAYLOAD;

/// A push that has just been abandoned.
#[derive(Debug, Clone)]
pub struct NewDeadLetter {
    pub delivery: DeliveryKey,
    /// The reason, one of the closed list in the migration.
    pub reason: &'static str,
    /// The operator who moved the push to the dead letters, if any.
    pub actor: Option<Arc<str>>,
}

/// The statement behind [`insert_dead_letters`], public for the cost tests.
pub const INSERT_DEAD_LETTERS: Statement = statement!("insert_dead_letters");

/// Stores abandoned pushes as dead letters. Call it in the transaction that abandons them.
pub async fn insert_dead_letters(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    new: &[NewDeadLetter],
) -> QueryResult<()> {
    INSERT_DEAD_LETTERS
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(new.iter().map(|letter| letter.delivery.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(new.iter().map(|letter| letter.delivery.id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(new.iter().map(|letter| letter.reason).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(new.iter().map(|letter| letter.actor.as_deref()).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// An abandoned or cancelled push that is pending again.
#[derive(Debug, Clone)]
pub struct Revival {
    pub delivery: DeliveryKey,
    /// The operator who requested it, if known.
    pub actor: Option<Arc<str>>,
    /// The reason that the operator gave.
    pub reason: Option<String>,
    /// How to send it, if a dead letter is replayed. `None` for a plain retry.
    pub replay: Option<ReplayTerms>,
}

/// How a dead letter is replayed.
#[derive(Debug, Clone)]
pub struct ReplayTerms {
    /// The open dead letter of the delivery.
    pub dead_letter_id: i64,
    pub config: ReplayConfig,
    /// The edited payload, if it was edited.
    pub payload: Option<RawJson>,
    /// A new webhook id, if the receiver is to treat the replay as a new message.
    pub webhook_id: Option<String>,
}

/// Closes the open dead letters of deliveries that are pending again. Stores on each delivery which dead
/// letter it replays, or that it replays none.
pub async fn revive_dead_letters(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    revivals: &[Revival],
) -> QueryResult<()> {
    let terms = || revivals.iter().map(|revival| revival.replay.as_ref());
    let payload = |terms: &ReplayTerms| terms.payload.clone().map(JsonColumn);
    statement!("revive_dead_letters")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(revivals.iter().map(|revival| revival.delivery.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(revivals.iter().map(|revival| revival.delivery.id).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(terms().map(|t| t.map(|t| t.dead_letter_id)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(revivals.iter().map(|revival| revival.actor.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(revivals.iter().map(|revival| revival.reason.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(terms().map(|t| t.map(|t| t.config.as_str())).collect::<Vec<_>>())
        .bind::<Array<Nullable<Json>>, _>(terms().map(|t| t.and_then(payload)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(terms().map(|t| t?.webhook_id.as_deref()).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Locks the ordering keys of dead letters until the transaction ends. Returns whether the delivery of any of them was
/// removed.
pub async fn lock_keys_of_dead_letters(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[i64]) -> QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Locked {
        #[diesel(sql_type = BigInt)]
        left_over: i64,
    }
    let query = statement!("lock_keys_of_dead_letters").query().bind::<Integer, _>(scope.namespace);
    let locked: Locked = query.bind::<Array<BigInt>, _>(ids).cached().load_one(conn).await?;
    Ok(locked.left_over > 0)
}

/// Makes the pushes of open dead letters again whose deliveries were removed, and their events. The caller holds the
/// locks of their ordering keys, and replays them in the same transaction.
pub async fn restore_pushes(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[i64]) -> QueryResult<()> {
    statement!("lock_removal").query().bind::<Integer, _>(scope.namespace).cached().execute(conn).await?;
    statement!("restore_pushes")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Array<BigInt>, _>(ids)
        .bind::<Integer, _>(LARGE_PAYLOAD as i32)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// How to send a replayed push.
#[derive(Debug, QueryableByName)]
pub struct ReplayRow {
    #[diesel(sql_type = Text)]
    pub replay_config: String,
    #[diesel(sql_type = Json)]
    pub subscription: JsonColumn,
    #[diesel(sql_type = Integer)]
    pub subscription_version: i32,
    /// The edited payload, or the payload of the abandoned push.
    #[diesel(sql_type = Json)]
    pub payload: JsonColumn,
    #[diesel(sql_type = Nullable<Text>)]
    pub replay_webhook_id: Option<String>,
}

/// Returns how a dead letter is replayed, or `None` if it has been deleted since.
pub async fn load_replay(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    dead_letter_id: i64,
) -> QueryResult<Option<ReplayRow>> {
    let query = statement!("load_replay").query().bind::<Integer, _>(scope.namespace);
    query.bind::<BigInt, _>(dead_letter_id).cached().load_one(conn).await.optional()
}
