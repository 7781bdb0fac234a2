//! Finds and locks overdue deliveries in one statement that never waits for a lock.
//!
//! A row that another transaction has locked is skipped, and so is a row whose ordering key is locked:
//! one lock that is held for long must not delay all other deliveries. A lock that is not waited for
//! cannot be part of a deadlock, so the usual order of locks does not matter here.
//!
//! A transaction that ends a delivery also writes two other rows: the event's own row, if that is a
//! roll-up of its pushes, and the next delivery of the ordering key, which enters `ready`. The statement
//! therefore locks these rows in the same way, and skips the delivery if it cannot lock them.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, DeliveryKey, NamespaceId, delivery_keys};
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};
use crate::store::tables::ordering::DeliveryKeyRow;

/// The kind of deliveries that a sweep finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Deliveries that have become due.
    Due,
    /// Pending deliveries that have expired.
    Expired,
}

/// The result of [`lock_overdue`].
#[derive(Debug, QueryableByName)]
pub struct Overdue {
    #[diesel(sql_type = Array<Integer>)]
    namespace_ids: Vec<NamespaceId>,
    #[diesel(sql_type = Array<BigInt>)]
    ids: Vec<DeliveryId>,
    /// The low-water mark: no delivery, locked or not, waits for an earlier time.
    #[diesel(sql_type = Timestamptz)]
    pub head: DateTime<Utc>,
    /// The seconds until the earliest time for which any delivery waits. `None` if none waits.
    #[diesel(sql_type = Nullable<Double>)]
    pub head_in_seconds: Option<f64>,
}

impl Overdue {
    /// Returns the locked deliveries, of all namespaces, the most overdue first. Their ordering keys are locked, too.
    pub fn keys(&self) -> Vec<DeliveryKey> {
        delivery_keys(&self.namespace_ids, &self.ids)
    }
}

/// The statement behind [`lock_overdue`] for [`Sweep::Due`], public for the cost tests.
pub const LOCK_DUE: Statement = statement!("lock_due");

/// The statement behind [`lock_overdue`] for [`Sweep::Expired`], public for the cost tests.
pub const LOCK_EXPIRED: Statement = statement!("lock_expired");

/// The statement behind [`lock_expired_leases`], public for the cost tests.
pub const LOCK_EXPIRED_LEASES: Statement = statement!("lock_expired_leases");

/// Locks up to `limit` overdue deliveries from the low-water mark `from` on. Skips rows that other
/// transactions have locked.
pub async fn lock_overdue(
    conn: &mut AsyncPgConnection,
    sweep: Sweep,
    now: Option<DateTime<Utc>>,
    from: Option<DateTime<Utc>>,
    limit: i64,
) -> QueryResult<Overdue> {
    let statement = match sweep {
        Sweep::Due => LOCK_DUE,
        Sweep::Expired => LOCK_EXPIRED,
    };
    statement
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(limit)
        .bind::<Nullable<Timestamptz>, _>(from)
        .cached()
        .load_one(conn)
        .await
}

/// Locks those of `deliveries` whose lease has expired, and returns them. Skips rows that other transactions have
/// locked.
pub async fn lock_expired_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    deliveries: &[DeliveryKey],
    poison_after: i32,
) -> QueryResult<Vec<DeliveryKey>> {
    let rows: Vec<DeliveryKeyRow> = LOCK_EXPIRED_LEASES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(deliveries.iter().map(|key| key.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(deliveries.iter().map(|key| key.id).collect::<Vec<_>>())
        .bind::<Integer, _>(poison_after)
        .cached()
        .load(conn)
        .await?;
    Ok(DeliveryKeyRow::keys(rows))
}
