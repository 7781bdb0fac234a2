//! Workers: when each called last, and the deliveries that it holds.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{EventId, NamespaceId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::lists::pages::NamePage;
use crate::store::statement::statement;

/// A call of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    pub namespace: NamespaceId,
    pub worker_id: String,
    /// The tags that it requested, if the call was a claim.
    pub tags: Option<Vec<String>>,
    pub seconds_ago: f64,
}

/// Records when workers called last.
pub(crate) async fn record_sightings(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    sightings: &[Sighting],
) -> QueryResult<()> {
    // Tags contain no commas, so a list of tags is bound as one string.
    statement!("record_sightings")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(sightings.iter().map(|s| s.namespace).collect::<Vec<_>>())
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

/// A worker, for operators. The fields are named as in the API.
#[derive(Debug, QueryableByName)]
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

/// Returns a page of workers in the order of their names. Each has up to 10 ids of the events that it holds, their
/// number, and the number of those without a sign of life for `stale_seconds`.
pub async fn list_workers(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    stale_seconds: f64,
    page: &NamePage,
) -> QueryResult<Vec<WorkerRow>> {
    statement!("list_workers")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(stale_seconds)
        .bind::<Nullable<Text>, _>(page.after.as_deref())
        .bind::<Bool, _>(page.descending)
        .bind::<BigInt, _>(page.limit)
        .load(conn)
        .await
}
