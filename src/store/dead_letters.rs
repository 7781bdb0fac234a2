//! Dead letters: pushes that were given up, as they were at the time.

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Nullable, Text, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::cached::CachedExt;

/// A push that has just been given up.
#[derive(Debug, Clone)]
pub struct NewDeadLetter {
    /// The delivery.
    pub delivery_id: i64,
    /// Why: a word of the closed list in the migration.
    pub reason: &'static str,
    /// Who moved it here by hand, if somebody did.
    pub moved_by: Option<String>,
}

/// Keeps a copy of pushes that have just been given up, in the same transaction.
pub async fn insert_dead_letters(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    new: &[NewDeadLetter],
) -> QueryResult<()> {
    sql_query(include_str!("sql/insert_dead_letters.sql"))
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<BigInt>, _>(new.iter().map(|letter| letter.delivery_id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(new.iter().map(|letter| letter.reason).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(new.iter().map(|letter| letter.moved_by.as_deref()).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Deliveries have been revived by another way than a replay: their dead letters are done with.
pub async fn close_dead_letters(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    delivery_ids: &[i64],
) -> QueryResult<()> {
    sql_query(
        "UPDATE waybill.dead_letters SET replayed_at = coalesce($1, now()), replay_config = 'current' \
         WHERE delivery_id = ANY($2) AND replayed_at IS NULL",
    )
    .bind::<Nullable<Timestamptz>, _>(now)
    .bind::<Array<BigInt>, _>(delivery_ids)
    .cached()
    .execute(conn)
    .await
    .map(drop)
}
