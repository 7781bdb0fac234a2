//! Gauges of pushing, read from the tables at a bounded cost.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::store::connection::cached::CachedExt;
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
        .get_result(conn)
        .await
}
