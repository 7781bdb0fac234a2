//! Workers: who has been seen, and what they hold.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// One sighting.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// Who.
    pub worker_id: String,
    /// What it asked for, if it asked.
    pub tags: Option<Vec<String>>,
    /// How long ago.
    pub seconds_ago: f64,
}

/// Writes sightings down.
pub async fn record_sightings(conn: &mut AsyncPgConnection, scope: &Scope, sightings: &[Sighting]) -> QueryResult<()> {
    // Tags hold no commas, so a list of them travels as one string.
    statement!("record_sightings")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Array<Text>, _>(sightings.iter().map(|s| s.worker_id.as_str()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(
            sightings.iter().map(|s| s.tags.as_ref().map(|tags| tags.join(","))).collect::<Vec<_>>(),
        )
        .bind::<Array<Double>, _>(sightings.iter().map(|s| s.seconds_ago).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// A worker, as operators see it.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "named as in the contract")]
pub struct WorkerRow {
    #[diesel(sql_type = Text)]
    pub worker_id: String,
    #[diesel(sql_type = Array<Text>)]
    pub tags: Vec<String>,
    #[diesel(sql_type = Timestamptz)]
    pub first_seen_at: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    pub last_seen_at: DateTime<Utc>,
    #[diesel(sql_type = BigInt)]
    pub holding: i64,
    #[diesel(sql_type = BigInt)]
    pub stale: i64,
    #[diesel(sql_type = Array<BigInt>)]
    pub event_ids: Vec<EventId>,
}

/// A page of workers, by name, with what they hold (at most ten ids each) and how much of
/// that has seen no sign of life for `stale_seconds`.
pub async fn list_workers(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    stale_seconds: f64,
    after: &str,
    limit: i64,
) -> QueryResult<Vec<WorkerRow>> {
    statement!("list_workers")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(stale_seconds)
        .bind::<Text, _>(after)
        .bind::<BigInt, _>(limit)
        .load(conn)
        .await
}
