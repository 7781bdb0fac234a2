//! Claims that a worker may repeat, identified by their `idempotency_key`.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::prelude::QueryableByName;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, LeaseId, NamespaceId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::work_of_events;
use crate::store::tables::schema::{claim_requests, deliveries};

/// The key of a claim request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestKey<'a> {
    pub namespace: NamespaceId,
    pub worker_id: &'a str,
    /// The worker's key for the request, the same in each repetition.
    pub idempotency_key: &'a str,
}

/// The claims that the first call of a request received.
#[derive(Debug, Default, QueryableByName)]
pub(crate) struct Remembered {
    #[diesel(sql_type = Array<BigInt>)]
    pub delivery_ids: Vec<DeliveryId>,
    /// The leases of the deliveries, in the same order.
    #[diesel(sql_type = Array<BigInt>)]
    pub lease_ids: Vec<LeaseId>,
}

/// A claim request under lock.
#[derive(Debug, QueryableByName)]
pub(crate) struct LockedRequest {
    /// The claims that earlier calls received.
    #[diesel(embed)]
    pub remembered: Remembered,
    /// The number of calls, including this one.
    #[diesel(sql_type = Integer)]
    pub asks: i32,
}

/// Locks a request until the transaction ends, and returns the claims that it received before.
/// Concurrent calls of the same request are serialised here. A request that has received nothing is not
/// stored: idle workers send requests all day, each with a new key.
pub(crate) async fn lock_request(conn: &mut AsyncPgConnection, key: RequestKey<'_>) -> QueryResult<LockedRequest> {
    statement!("lock_claim_request")
        .query()
        .bind::<Integer, _>(key.namespace)
        .bind::<Text, _>(key.worker_id)
        .bind::<Text, _>(key.idempotency_key)
        .cached()
        .execute(conn)
        .await?;
    // A separate statement, since its snapshot must include what the last holder of the lock committed.
    let repeated: Option<LockedRequest> = statement!("repeat_claim_request")
        .query()
        .bind::<Integer, _>(key.namespace)
        .bind::<Text, _>(key.worker_id)
        .bind::<Text, _>(key.idempotency_key)
        .cached()
        .load_one(conn)
        .await
        .optional()?;
    Ok(repeated.unwrap_or(LockedRequest { remembered: Remembered::default(), asks: 1 }))
}

/// Locks the row of a request. Returns whether call number `asks` is still the latest one.
pub(crate) async fn is_last_ask(conn: &mut AsyncPgConnection, key: RequestKey<'_>, asks: i32) -> QueryResult<bool> {
    let last: Option<i32> = claim_requests::table
        .find((key.namespace, key.worker_id, key.idempotency_key))
        .select(claim_requests::asks)
        .for_update()
        .load_first(conn)
        .await
        .optional()?;
    // The row has been deleted by retention: the request has not been repeated for a day.
    Ok(last.is_none_or(|last| last == asks))
}

/// Stores the claims that a request received, for its repetitions.
pub(crate) async fn remember_claim(
    conn: &mut AsyncPgConnection,
    key: RequestKey<'_>,
    claimed: &Remembered,
    now: Option<DateTime<Utc>>,
) -> QueryResult<()> {
    statement!("remember_claim")
        .query()
        .bind::<Integer, _>(key.namespace)
        .bind::<Text, _>(key.worker_id)
        .bind::<Text, _>(key.idempotency_key)
        .bind::<Array<BigInt>, _>(&claimed.delivery_ids)
        .bind::<Array<BigInt>, _>(&claimed.lease_ids)
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Returns the events of the remembered claims whose leases are still valid, in the remembered order. An
/// expired lease is not valid, even if the delivery has not been reset yet.
pub(crate) async fn load_standing(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    remembered: &Remembered,
) -> QueryResult<Vec<EventRow>> {
    // Only a delivery that is being processed has a lease.
    let rows: Vec<EventRow> = work_of_events()
        .filter(deliveries::namespace_id.eq(scope.namespace))
        .filter(deliveries::id.eq_any(&remembered.delivery_ids))
        .filter(sql::<Bool>("lease_expires_at > coalesce(").bind::<Nullable<Timestamptz>, _>(scope.now).sql(", now())"))
        .select(EventRow::as_select())
        .load(conn)
        .await?;
    let valid = |id: DeliveryId, lease: LeaseId| {
        rows.iter().find(|row| row.event.id.own_delivery() == id && row.work.lease_id == lease).cloned()
    };
    Ok(remembered.delivery_ids.iter().zip(&remembered.lease_ids).filter_map(|(id, lease)| valid(*id, *lease)).collect())
}
