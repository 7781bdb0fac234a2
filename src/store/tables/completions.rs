//! Completions by the holder of the lease, in one guarded statement.
//!
//! This is the fast path of the most frequent settlement. All other cases are loaded and judged.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::api_key::TagPatterns;
use crate::domain::delivery::Report;
use crate::domain::ids::{DeliveryKey, LeaseId};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::JsonParameter;
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::events::column_or_null;

/// A completion to try on the fast path.
#[derive(Debug)]
pub struct Completion<'a> {
    pub delivery: DeliveryKey,
    /// The claim that the worker means. `None` means the latest claim of the worker.
    pub lease_id: Option<LeaseId>,
    pub worker_id: &'a str,
    /// The tags that the worker's key allows. `None` means all.
    pub tag_patterns: Option<&'a TagPatterns>,
    pub report: &'a Report,
}

/// A completion that the fast path has recorded.
#[derive(Debug, QueryableByName)]
pub struct Completed {
    /// The number of the completion in the order given, from 1.
    #[diesel(sql_type = BigInt)]
    pub ord: i64,
    #[diesel(embed)]
    pub entry: LogEntry,
    /// The number of failed attempts before.
    #[diesel(sql_type = Integer)]
    pub retry_count: i32,
    /// The maximum number of attempts.
    #[diesel(sql_type = Integer)]
    pub max_retries: i32,
}

/// The statement behind [`complete_deliveries`], public for the cost tests.
pub const COMPLETE_DELIVERIES: Statement = statement!("complete_deliveries");

/// Completes the deliveries that their worker holds. A delivery that is missing in the result was not
/// changed and must be judged.
pub async fn complete_deliveries(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    completions: &[Completion<'_>],
) -> QueryResult<Vec<Completed>> {
    let calls: Vec<&Completion<'_>> = completions.iter().collect();
    let reports: Vec<&Report> = completions.iter().map(|completion| completion.report).collect();
    COMPLETE_DELIVERIES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(completions.iter().map(|c| c.delivery.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(completions.iter().map(|c| c.delivery.id).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(completions.iter().map(|c| c.lease_id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(completions.iter().map(|c| c.worker_id).collect::<Vec<_>>())
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&calls, |c| c.tag_patterns.map(TagPatterns::joined)))
        .bind::<Nullable<Array<Nullable<Integer>>>, _>(column_or_null(&reports, |r| r.status_code))
        .bind::<Nullable<Array<Nullable<BigInt>>>, _>(column_or_null(&reports, |r| r.execution_time_ms))
        .bind::<Nullable<Array<Nullable<Json>>>, _>(column_or_null(&reports, |r| r.result.as_ref().map(JsonParameter)))
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&reports, |r| r.push.response_excerpt.as_deref()))
        .bind::<Nullable<Array<Nullable<Integer>>>, _>(column_or_null(&reports, |r| r.push.subscription_version))
        .cached()
        .load(conn)
        .await
}
