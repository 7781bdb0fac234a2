//! Finds overdue deliveries whose ordering key is locked whenever a sweep tries to lock it.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, DeliveryKey, NamespaceId};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::deliveries::EarliestTimes;

/// An overdue delivery, and the lock of its ordering key.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct OverdueInKey {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    id: DeliveryId,
    #[diesel(sql_type = Integer)]
    pub key_lock: i32,
}

impl OverdueInKey {
    pub fn delivery(&self) -> DeliveryKey {
        self.namespace_id.delivery(self.id)
    }
}

/// The parameters of [`find_busy_keys`].
#[derive(Debug)]
pub struct BusyKeyScan {
    /// The low-water marks at which to begin. `None` means the beginning of the index.
    pub from: EarliestTimes,
    /// The time by which a delivery must be overdue.
    pub overdue_seconds: f64,
    /// The maximum number of candidates to read of each kind (due, expired, lease).
    pub candidates: i64,
    /// Whether to include expired leases.
    pub with_leases: bool,
}

/// The statement behind [`find_busy_keys`], public for the cost tests.
pub const FIND_BUSY_KEYS: Statement = statement!("find_busy_keys");

/// Returns overdue deliveries that have an ordering key. Does not lock anything.
pub async fn find_busy_keys(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    scan: &BusyKeyScan,
) -> QueryResult<Vec<OverdueInKey>> {
    FIND_BUSY_KEYS
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Nullable<Timestamptz>, _>(scan.from.due_at)
        .bind::<Nullable<Timestamptz>, _>(scan.from.expires_at)
        .bind::<Nullable<Timestamptz>, _>(scan.from.look_at)
        .bind::<Double, _>(scan.overdue_seconds)
        .bind::<BigInt, _>(scan.candidates)
        .bind::<Bool, _>(scan.with_leases)
        .cached()
        .load(conn)
        .await
}
