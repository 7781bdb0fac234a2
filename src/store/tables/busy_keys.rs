//! Overdue deliveries whose ordering key is never free when a sweep tries it.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::DeliveryId;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::deliveries::EarliestTimes;

/// A delivery that is overdue, and the lock of its ordering key.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct OverdueInKey {
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
    #[diesel(sql_type = Integer)]
    pub key_lock: i32,
}

/// Which overdue deliveries to find.
#[derive(Debug)]
pub struct BusyKeyScan {
    /// Where to begin; none: at the very beginning.
    pub from: EarliestTimes,
    pub overdue_seconds: f64,
    /// Candidates of each kind to read.
    pub candidates: i64,
    /// Whether leases that have run out are wanted, too.
    pub with_leases: bool,
}

/// The statement behind [`find_busy_keys`].
pub const FIND_BUSY_KEYS: Statement = statement!("find_busy_keys");

/// Returns overdue deliveries that have an ordering key. Nothing is locked.
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
