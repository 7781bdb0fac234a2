//! Completions by whoever simply holds the work: one guarded statement.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::delivery::Report;
use crate::domain::ids::{DeliveryId, LeaseId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::JsonParameter;
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::events::used;

/// A completion, as the short way wants it.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The delivery.
    pub id: DeliveryId,
    /// The claim meant, if the worker says.
    pub lease_id: Option<LeaseId>,
    /// The worker.
    pub worker_id: &'a str,
    /// What it says.
    pub report: &'a Report,
}

/// A completion that went the short way.
#[derive(Debug, QueryableByName)]
pub struct Completed {
    /// Its place among those given, counted from one.
    #[diesel(sql_type = BigInt)]
    pub ord: i64,
    /// The line that it left.
    #[diesel(embed)]
    pub entry: LogEntry,
    /// Failures before it.
    #[diesel(sql_type = Integer)]
    pub retry_count: i32,
    /// Attempts in all.
    #[diesel(sql_type = Integer)]
    pub max_retries: i32,
}

/// The statement behind [`complete_deliveries`], for those who measure it.
pub const COMPLETE_DELIVERIES: Statement = statement!("complete_deliveries");

/// Completes what is simply held by its caller; whatever is missing in the answer was not
/// touched and has to be judged.
pub async fn complete_deliveries(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    completions: &[Completion<'_>],
) -> QueryResult<Vec<Completed>> {
    let reports: Vec<&Report> = completions.iter().map(|completion| completion.report).collect();
    COMPLETE_DELIVERIES
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Array<BigInt>, _>(completions.iter().map(|c| c.id).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(completions.iter().map(|c| c.lease_id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(completions.iter().map(|c| c.worker_id).collect::<Vec<_>>())
        .bind::<Nullable<Array<Nullable<Integer>>>, _>(used(&reports, |r| r.status_code))
        .bind::<Nullable<Array<Nullable<BigInt>>>, _>(used(&reports, |r| r.execution_time_ms))
        .bind::<Nullable<Array<Nullable<Json>>>, _>(used(&reports, |r| r.result.as_ref().map(JsonParameter)))
        .bind::<Nullable<Array<Nullable<Text>>>, _>(used(&reports, |r| r.push.response_excerpt.as_deref()))
        .bind::<Nullable<Array<Nullable<Integer>>>, _>(used(&reports, |r| r.push.subscription_version))
        .cached()
        .load(conn)
        .await
}
