//! Dead letters: pushes that were given up, as they were at the time.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::dead_letter::ReplayConfig;
use crate::domain::ids::DeliveryId;
use crate::domain::json::RawJson;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::JsonColumn;

/// A push that has just been given up.
#[derive(Debug, Clone)]
pub struct NewDeadLetter {
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// Why: a word of the closed list in the migration.
    pub reason: &'static str,
    /// Who moved it here by hand, if somebody did.
    pub moved_by: Option<String>,
}

/// The statement behind [`insert_dead_letters`], for those who measure it.
pub const INSERT_DEAD_LETTERS: Statement = statement!("insert_dead_letters");

/// Keeps a copy of pushes that have just been given up, in the same transaction.
pub async fn insert_dead_letters(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    new: &[NewDeadLetter],
) -> QueryResult<()> {
    INSERT_DEAD_LETTERS
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<BigInt>, _>(new.iter().map(|letter| letter.delivery_id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(new.iter().map(|letter| letter.reason).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(new.iter().map(|letter| letter.moved_by.as_deref()).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// A push that was given up or called off comes back to life.
#[derive(Debug, Clone)]
pub struct Revival {
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// How it is sent, if it comes back from the dead letters; as it ever was, if not.
    pub replay: Option<ReplayTerms>,
}

/// How a dead letter is sent again.
#[derive(Debug, Clone)]
pub struct ReplayTerms {
    /// Which: the one of its delivery that waits for somebody to decide.
    pub dead_letter_id: i64,
    /// By whose word.
    pub by: String,
    /// By which configuration.
    pub config: ReplayConfig,
    /// Another body, if it was edited.
    pub payload: Option<RawJson>,
    /// Another id for the receiver to know it by.
    pub webhook_id: Option<String>,
}

/// Deliveries have been revived: the dead letters that waited for that are done with, and each
/// delivery remembers from which of them it is sent, or that it is from none.
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
        .bind::<Array<BigInt>, _>(revivals.iter().map(|revival| revival.delivery_id).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(terms().map(|t| t.map(|t| t.dead_letter_id)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(terms().map(|t| t.map(|t| t.by.as_str())).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(terms().map(|t| t.map(|t| t.config.as_str())).collect::<Vec<_>>())
        .bind::<Array<Nullable<Json>>, _>(terms().map(|t| t.and_then(payload)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(terms().map(|t| t?.webhook_id.as_deref()).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// How a push is sent that comes from the dead letters.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns are described in the migration")]
pub struct ReplayRow {
    #[diesel(sql_type = Text)]
    pub replay_config: String,
    #[diesel(sql_type = Json)]
    pub subscription: JsonColumn,
    #[diesel(sql_type = Integer)]
    pub subscription_version: i32,
    /// The edited body, or the one that was given up.
    #[diesel(sql_type = Json)]
    pub payload: JsonColumn,
    #[diesel(sql_type = Nullable<Text>)]
    pub replay_webhook_id: Option<String>,
}

/// The terms on which a dead letter is sent again, if it has not been forgotten since.
pub async fn load_replay(conn: &mut AsyncPgConnection, dead_letter_id: i64) -> QueryResult<Option<ReplayRow>> {
    statement!("load_replay").query().bind::<BigInt, _>(dead_letter_id).cached().get_result(conn).await.optional()
}
