//! Claims that may be asked for again, by their `request_id`.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::prelude::QueryableByName;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, LeaseId, NamespaceId};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::schema::{claim_requests, deliveries, events};

/// Who asked, and under which name.
#[derive(Debug, Clone, Copy)]
pub struct RequestKey<'a> {
    /// Whose queue.
    pub namespace: NamespaceId,
    /// The worker.
    pub worker_id: &'a str,
    /// Its name for the claim.
    pub request_id: &'a str,
}

/// What a request was given when it was first asked.
#[derive(Debug, Default, QueryableByName)]
pub struct Remembered {
    /// The deliveries.
    #[diesel(sql_type = Array<BigInt>)]
    pub delivery_ids: Vec<DeliveryId>,
    /// Their leases, in the same order.
    #[diesel(sql_type = Array<BigInt>)]
    pub lease_ids: Vec<LeaseId>,
}

/// A request, locked.
#[derive(Debug, QueryableByName)]
pub struct LockedRequest {
    /// What was given the last time.
    #[diesel(embed)]
    pub remembered: Remembered,
    /// How often it was asked, this time included.
    #[diesel(sql_type = Integer)]
    pub asks: i32,
}

/// Locks the request until the transaction ends, and tells what it was given before.
/// Simultaneous askers take turns here. A request that was never given anything leaves no
/// trace: idle workers ask all day, each time by another name.
pub async fn lock_request(conn: &mut AsyncPgConnection, key: RequestKey<'_>) -> QueryResult<LockedRequest> {
    statement!("lock_claim_request")
        .query()
        .bind::<Integer, _>(key.namespace)
        .bind::<Text, _>(key.worker_id)
        .bind::<Text, _>(key.request_id)
        .cached()
        .execute(conn)
        .await?;
    // A statement of its own: it must see what the last holder of the lock has written.
    let asked_before: Option<LockedRequest> = statement!("repeat_claim_request")
        .query()
        .bind::<Integer, _>(key.namespace)
        .bind::<Text, _>(key.worker_id)
        .bind::<Text, _>(key.request_id)
        .cached()
        .get_result(conn)
        .await
        .optional()?;
    Ok(asked_before.unwrap_or(LockedRequest { remembered: Remembered::default(), asks: 1 }))
}

/// Locks the request's row and tells whether nobody has asked since the `asks`-th time.
pub async fn is_last_ask(conn: &mut AsyncPgConnection, key: RequestKey<'_>, asks: i32) -> QueryResult<bool> {
    let last: Option<i32> = claim_requests::table
        .find((key.namespace, key.worker_id, key.request_id))
        .select(claim_requests::asks)
        .for_update()
        .first(conn)
        .await
        .optional()?;
    // Forgotten: nobody has asked for a day.
    Ok(last.is_none_or(|last| last == asks))
}

/// Remembers what the request was given.
pub async fn remember_claim(
    conn: &mut AsyncPgConnection,
    key: RequestKey<'_>,
    claimed: &Remembered,
    now: Option<DateTime<Utc>>,
) -> QueryResult<()> {
    statement!("remember_claim")
        .query()
        .bind::<Integer, _>(key.namespace)
        .bind::<Text, _>(key.worker_id)
        .bind::<Text, _>(key.request_id)
        .bind::<Array<BigInt>, _>(&claimed.delivery_ids)
        .bind::<Array<BigInt>, _>(&claimed.lease_ids)
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// The events of these claims whose leases still stand, in the order remembered. A lease that
/// has run out does not stand, even if nobody has taken the work back yet.
pub async fn load_standing(
    conn: &mut AsyncPgConnection,
    remembered: &Remembered,
    now: Option<DateTime<Utc>>,
) -> QueryResult<Vec<EventRow>> {
    let rows: Vec<EventRow> = deliveries::table
        .inner_join(events::table)
        .filter(deliveries::id.eq_any(&remembered.delivery_ids))
        .filter(deliveries::status.eq("PROCESSING"))
        .filter(sql::<Bool>("lease_expires_at > coalesce(").bind::<Nullable<Timestamptz>, _>(now).sql(", now())"))
        .select(EventRow::as_select())
        .load(conn)
        .await?;
    let standing = |id: DeliveryId, lease: LeaseId| {
        rows.iter().find(|row| row.event.id.own_delivery() == id && row.work.lease_id == lease).cloned()
    };
    Ok(remembered
        .delivery_ids
        .iter()
        .zip(&remembered.lease_ids)
        .filter_map(|(id, lease)| standing(*id, *lease))
        .collect())
}
