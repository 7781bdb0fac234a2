//! What can be read off the tables at a glance, at a bounded cost.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// How pushing stands.
#[derive(Debug, QueryableByName)]
pub struct Gauges {
    /// Deliveries that can be sent, or wait to be sent again, each counted up to the limit.
    #[diesel(sql_type = BigInt)]
    pub pushes_pending: i64,
    /// For how long the first of any queue has been ready.
    #[diesel(sql_type = Nullable<Double>)]
    pub oldest_push_seconds: Option<f64>,
    /// Endpoints whose breaker is open.
    #[diesel(sql_type = BigInt)]
    pub breakers_open: i64,
}

/// Reads how pushing stands, looking at these queues for the oldest.
pub async fn read_gauges(
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
