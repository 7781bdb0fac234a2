//! Settlements that were refused, counted by who wanted what.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{EventId, EventKey, LeaseId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};

/// The maximum number of rows of an event.
pub const MAX_PER_EVENT: i64 = 20;

/// The statement behind [`record_refused_settlements`], public for the cost tests.
pub const RECORD_REFUSED_SETTLEMENTS: Statement = statement!("record_refused_settlements");

/// Refused settlements that differ in nothing but their time. The migration describes the columns.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct RefusedSettlement {
    /// The claim that the caller named, or [`LeaseId::NONE`].
    #[diesel(sql_type = BigInt)]
    pub lease_id: LeaseId,
    #[diesel(sql_type = Text)]
    pub action: String,
    #[diesel(sql_type = Text)]
    pub code: String,
    #[diesel(sql_type = Text)]
    pub worker_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub actor: Option<String>,
    #[diesel(sql_type = BigInt)]
    pub calls: i64,
    #[diesel(sql_type = Timestamptz)]
    pub first_at: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    pub last_at: DateTime<Utc>,
}

/// Adds refused settlements to those that are recorded. No two may differ in nothing but their time.
pub(crate) async fn record_refused_settlements(
    conn: &mut AsyncPgConnection,
    refused: &[(EventKey, RefusedSettlement)],
) -> QueryResult<()> {
    let rows = || refused.iter().map(|(_, row)| row);
    RECORD_REFUSED_SETTLEMENTS
        .query()
        .bind::<Array<Integer>, _>(refused.iter().map(|(event, _)| event.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(refused.iter().map(|(event, _)| event.id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(rows().map(|row| row.lease_id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows().map(|row| row.action.as_str()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows().map(|row| row.code.as_str()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows().map(|row| row.worker_id.as_str()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(rows().map(|row| row.actor.as_deref()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(rows().map(|row| row.calls).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(rows().map(|row| row.first_at).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(rows().map(|row| row.last_at).collect::<Vec<_>>())
        .bind::<BigInt, _>(MAX_PER_EVENT)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Returns the first [`MAX_PER_EVENT`] refused settlements of an event, oldest first.
pub async fn refused_settlements_of_event(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_id: EventId,
) -> QueryResult<Vec<RefusedSettlement>> {
    statement!("refused_settlements_of_event")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(event_id)
        .bind::<BigInt, _>(MAX_PER_EVENT)
        .cached()
        .load(conn)
        .await
}
