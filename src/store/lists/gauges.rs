//! Gauges of pushing, read from the tables at a bounded cost.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// The state of pushing in a namespace.
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
    scope: &Scope,
    queues: &[String],
    limit: i64,
) -> QueryResult<Gauges> {
    statement!("read_gauges")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(queues)
        .bind::<BigInt, _>(limit)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .cached()
        .get_result(conn)
        .await
}
