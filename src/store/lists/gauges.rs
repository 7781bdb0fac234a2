//! Gauges of pushing and of queues, read from the tables of all namespaces at a bounded cost.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::ready::QueueKey;

/// The state of pushing in all namespaces.
#[derive(Debug, QueryableByName)]
pub(crate) struct Gauges {
    /// Pushes that are ready plus pushes that wait for a due time. Each number is counted up to the limit.
    #[diesel(sql_type = BigInt)]
    pub pushes_pending: i64,
    /// The longest time for which the head of a queue has been ready.
    #[diesel(sql_type = Nullable<Double>)]
    pub oldest_push_seconds: Option<f64>,
    /// Endpoints whose circuit breaker is open, counted up to the limit.
    #[diesel(sql_type = BigInt)]
    pub breakers_open: i64,
    /// Dead letters that have not been replayed, counted up to the limit.
    #[diesel(sql_type = BigInt)]
    pub dead_letters: i64,
    /// The version of PostgreSQL.
    #[diesel(sql_type = Text)]
    pub version: String,
}

/// Reads the gauges. The oldest push is searched in `queues`, and no number is counted beyond `limit`.
pub(crate) async fn read_gauges(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    queues: &[QueueKey],
    limit: i64,
) -> QueryResult<Gauges> {
    statement!("read_gauges")
        .query()
        .bind::<Array<Integer>, _>(queues.iter().map(|queue| queue.namespace).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>())
        .bind::<BigInt, _>(limit)
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .load_one(conn)
        .await
}

/// The limits of [`read_queues`].
#[derive(Debug, Clone, Copy)]
pub struct QueueCaps {
    /// The number of tags of a namespace that are searched.
    pub tags_per_namespace: i64,
    /// The number of tags of all namespaces. One more is returned if there are more.
    pub queues: i64,
    /// The number up to which waiting events are counted.
    pub waiting: i64,
    /// The number of workers up to which they are counted.
    pub workers: i64,
}

/// The queue of a tag.
#[derive(Debug, QueryableByName)]
pub struct QueueRow {
    #[diesel(sql_type = Integer)]
    pub namespace_id: i32,
    #[diesel(sql_type = Text)]
    pub namespace: String,
    #[diesel(sql_type = Text)]
    pub tag: String,
    #[diesel(sql_type = BigInt)]
    pub waiting: i64,
    #[diesel(sql_type = Double)]
    pub oldest_seconds: f64,
    /// The number of workers that have asked for the tag lately, or `None` if too many workers have called.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub workers: Option<i64>,
}

/// Reads the queues of the tags under which events wait, the deepest first.
pub async fn read_queues(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    caps: QueueCaps,
) -> QueryResult<Vec<QueueRow>> {
    statement!("read_queues")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(caps.tags_per_namespace)
        .bind::<BigInt, _>(caps.queues)
        .bind::<BigInt, _>(caps.waiting)
        .bind::<BigInt, _>(caps.workers)
        .cached()
        .load(conn)
        .await
}
