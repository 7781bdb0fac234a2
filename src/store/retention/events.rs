//! Removes finished events with their deliveries, in small steps along their ids.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{EventId, NamespaceId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};

/// The statement behind [`remove_events`], public for the cost tests.
pub const REMOVE_EVENTS: Statement = statement!("remove_events");

/// The statement behind [`remove_pushes`], public for the cost tests.
pub const REMOVE_PUSHES: Statement = statement!("remove_pushes");

/// One step along the ids of events.
#[derive(Debug, Clone, Copy)]
pub struct RemovalStep {
    /// Events and pushes that finished longer ago are removed.
    pub retention_seconds: f64,
    /// The step stops at the first event that was created more recently, but not in the future.
    pub created_seconds: f64,
    /// The step visits the events with higher ids.
    pub after: i64,
    /// The maximum number of events that are visited, and of events and pushes that are removed.
    pub max_rows: i64,
    /// Idempotency keys that live as long as their event are kept for this long at least.
    pub key_seconds: f64,
}

/// What a step has removed, and where the next one begins.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct RemovedEvents {
    /// Whether this server may remove events. Otherwise another one is doing so, and nothing else is known.
    #[diesel(sql_type = Bool)]
    pub is_ours: bool,
    #[diesel(sql_type = BigInt)]
    pub visited: i64,
    #[diesel(sql_type = BigInt)]
    pub events: i64,
    #[diesel(sql_type = BigInt)]
    pub pushes: i64,
    #[diesel(sql_type = BigInt)]
    pub tags: i64,
    /// The last event that the step is done with, or `None` if there is none.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub last_id: Option<i64>,
    /// The event before which the step stopped, because it has more pushes than a step may remove.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub large_event_id: Option<EventId>,
    /// Whether there may be more events that are old enough.
    #[diesel(sql_type = Bool)]
    pub has_more: bool,
    /// The age of the last visited event beyond the retention.
    #[diesel(sql_type = Nullable<Double>)]
    pub lag_seconds: Option<f64>,
}

/// Removes the finished events of one step.
pub async fn remove_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    step: &RemovalStep,
) -> QueryResult<RemovedEvents> {
    REMOVE_EVENTS
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(step.retention_seconds)
        .bind::<BigInt, _>(step.after)
        .bind::<Double, _>(step.created_seconds)
        .bind::<BigInt, _>(step.max_rows)
        .bind::<Double, _>(step.key_seconds)
        .cached()
        .load_one(conn)
        .await
}

/// Removes a part of the pushes of a finished event that has too many of them for one step. Returns their number.
pub async fn remove_pushes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    retention_seconds: f64,
    event_id: EventId,
    max_rows: i64,
) -> QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Removed {
        #[diesel(sql_type = BigInt)]
        pushes: i64,
    }
    let removed: Removed = REMOVE_PUSHES
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(retention_seconds)
        .bind::<BigInt, _>(event_id)
        .bind::<BigInt, _>(max_rows)
        .cached()
        .load_one(conn)
        .await?;
    Ok(removed.pushes)
}

/// Returns the namespaces.
pub(crate) async fn list_namespaces(conn: &mut AsyncPgConnection) -> QueryResult<Vec<NamespaceId>> {
    #[derive(QueryableByName)]
    struct Namespace {
        #[diesel(sql_type = Integer)]
        id: NamespaceId,
    }
    let rows: Vec<Namespace> = statement!("list_namespaces").query().cached().load(conn).await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}
