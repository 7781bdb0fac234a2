//! What became of an event's pushes, counted on its own row where it has no other work.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::cached::CachedExt;
use super::columns::StatusColumn;
use crate::domain::status::Status;

/// What changed for the deliveries of one event.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RollUp {
    /// How many more are unfinished.
    pub open: i32,
    /// How many more were given up.
    pub failed: i32,
}

/// The statement behind [`roll_up`], for those who measure it.
pub const ROLL_UP: &str = include_str!("sql/roll_up.sql");

/// Counts on events' own rows what changed for their deliveries.
pub async fn roll_up(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    changes: &BTreeMap<i64, RollUp>,
) -> QueryResult<()> {
    sql_query(ROLL_UP)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<BigInt>, _>(changes.keys().copied().collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(changes.values().map(|change| change.open).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(changes.values().map(|change| change.failed).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// An event whose own row rolls up its pushes.
#[derive(Debug, QueryableByName)]
pub struct RolledUp {
    /// The event.
    #[diesel(sql_type = BigInt)]
    pub event_id: i64,
    /// Its pushes: of an event there are never more or fewer than when it was published.
    #[diesel(sql_type = Array<BigInt>)]
    pub pushes: Vec<i64>,
}

/// Of these events, those that are pushed and nothing else. Nothing is locked.
pub async fn find_rolled_up(conn: &mut AsyncPgConnection, event_ids: &[i64]) -> QueryResult<Vec<RolledUp>> {
    sql_query(
        "SELECT o.id AS event_id, p.ids AS pushes \
         FROM unnest($1) AS asked(id) \
         CROSS JOIN LATERAL (SELECT id, open_deliveries FROM waybill.deliveries WHERE id = asked.id OFFSET 0) o \
         CROSS JOIN LATERAL (SELECT coalesce(array_agg(id ORDER BY id), '{}') AS ids FROM waybill.deliveries \
                             WHERE event_id = o.id AND subscription_id IS NOT NULL) p \
         WHERE o.open_deliveries IS NOT NULL",
    )
    .bind::<Array<BigInt>, _>(event_ids)
    .cached()
    .load(conn)
    .await
}

#[derive(QueryableByName)]
struct StatusRow {
    #[diesel(sql_type = Text)]
    status: StatusColumn,
}

/// Where such an event stands. It stays there for as long as all its pushes are locked.
pub async fn status_of_rolled_up(conn: &mut AsyncPgConnection, event_id: i64) -> QueryResult<Status> {
    let row: StatusRow = sql_query("SELECT status FROM waybill.deliveries WHERE id = $1")
        .bind::<BigInt, _>(event_id)
        .cached()
        .get_result(conn)
        .await?;
    Ok(row.status.0)
}

/// Notes on an event's own row that its pushes are called off. All of them must be locked.
pub async fn ask_to_cancel(conn: &mut AsyncPgConnection, event_id: i64, reason: Option<&str>) -> QueryResult<()> {
    sql_query(
        "UPDATE waybill.deliveries SET cancel_requested = true, cancel_reason = coalesce($2, cancel_reason) \
         WHERE id = $1 AND open_deliveries > 0",
    )
    .bind::<BigInt, _>(event_id)
    .bind::<Nullable<Text>, _>(reason)
    .cached()
    .execute(conn)
    .await
    .map(drop)
}
