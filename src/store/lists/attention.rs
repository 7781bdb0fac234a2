//! What needs a person: recent failures, silent workers, open breakers and slow tags, each at a bounded cost.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::store::statement::statement;

/// An event that has failed and is still kept.
#[derive(Debug, QueryableByName)]
pub struct FailureRow {
    #[diesel(sql_type = Double)]
    pub seconds_ago: f64,
    /// `None` unless it has failed lately.
    #[diesel(sql_type = Nullable<Double>)]
    pub published_seconds_ago: Option<f64>,
    /// Its tags, separated by commas. `None` unless it has failed lately.
    #[diesel(sql_type = Nullable<Text>)]
    pub tags: Option<String>,
}

/// Returns the `max_rows` failed events that were published last. Those that have failed in the last `seconds` have their
/// tags.
pub async fn list_failures(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    seconds: f64,
    max_rows: i64,
) -> QueryResult<Vec<FailureRow>> {
    statement!("list_failures")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(seconds)
        .bind::<BigInt, _>(max_rows)
        .load(conn)
        .await
}

/// A worker that holds events and is silent.
#[derive(Debug, QueryableByName)]
pub struct StaleWorker {
    #[diesel(sql_type = Text)]
    pub worker_id: String,
    #[diesel(sql_type = BigInt)]
    pub holding: i64,
    #[diesel(sql_type = Double)]
    pub silent_seconds: f64,
    /// Up to three of the events.
    #[diesel(sql_type = Array<BigInt>)]
    pub event_ids: Vec<EventId>,
}

/// Returns up to `max_rows` workers that hold events without a sign of life for `stale_seconds`, among `count_cap` leases.
pub async fn list_stale_workers(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    stale_seconds: f64,
    count_cap: i64,
    max_rows: i64,
) -> QueryResult<Vec<StaleWorker>> {
    statement!("list_stale_workers")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(stale_seconds)
        .bind::<BigInt, _>(count_cap)
        .bind::<BigInt, _>(max_rows)
        .load(conn)
        .await
}

/// An endpoint whose circuit breaker is open.
#[derive(Debug, QueryableByName)]
pub struct OpenBreaker {
    #[diesel(sql_type = Text)]
    pub url: String,
    #[diesel(sql_type = Integer)]
    pub failures_in_row: i32,
    /// The seconds until the next request is sent there; negative if it is due.
    #[diesel(sql_type = Double)]
    pub paused_for: f64,
    /// The only subscription with this endpoint.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub subscription_id: Option<i64>,
}

/// Returns up to `max_rows` endpoints whose circuit breaker is open.
pub async fn list_open_breakers(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    max_rows: i64,
) -> QueryResult<Vec<OpenBreaker>> {
    statement!("list_open_breakers")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<BigInt, _>(max_rows)
        .load(conn)
        .await
}

#[derive(QueryableByName)]
struct BucketRow {
    #[diesel(sql_type = Text)]
    tag: String,
    #[diesel(sql_type = SmallInt)]
    bucket: i16,
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Returns the latencies of the events of each tag that were completed since an hour: how many there are in each bucket.
pub async fn read_tag_latencies(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    tags: &[&str],
    since: DateTime<Utc>,
) -> QueryResult<BTreeMap<String, BTreeMap<i16, i64>>> {
    let rows: Vec<BucketRow> = statement!("read_tag_latencies")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(tags)
        .bind::<Timestamptz, _>(since)
        .load(conn)
        .await?;
    let mut latencies: BTreeMap<String, BTreeMap<i16, i64>> = BTreeMap::new();
    for BucketRow { tag, bucket, count } in rows {
        latencies.entry(tag).or_default().insert(bucket, count);
    }
    Ok(latencies)
}
