//! The list of leases to check, `lease_watch`.
//!
//! Every delivery with a lease is on the list. A delivery that was settled stays on it until its row is
//! checked the next time.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, DeliveryKey, NamespaceId, delivery_keys};
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};

/// The result of [`take_watched_leases`].
#[derive(Debug, QueryableByName)]
pub struct Watched {
    /// The low-water mark: no row of the list has an earlier `look_at`.
    #[diesel(sql_type = Timestamptz)]
    pub head: DateTime<Utc>,
    /// The number of rows that were removed from the list.
    #[diesel(sql_type = BigInt)]
    pub taken: i64,
    #[diesel(sql_type = Array<Integer>)]
    namespace_ids: Vec<NamespaceId>,
    #[diesel(sql_type = Array<BigInt>)]
    ids: Vec<DeliveryId>,
}

impl Watched {
    /// Returns the deliveries whose lease has expired, of all namespaces, the longest expired first.
    pub fn expired(&self) -> Vec<DeliveryKey> {
        delivery_keys(&self.namespace_ids, &self.ids)
    }
}

/// The statement behind [`take_watched_leases`], public for the cost tests.
pub const TAKE_WATCHED_LEASES: Statement = statement!("take_watched_leases");

/// The rows that [`take_watched_leases`] takes off the list.
#[derive(Debug, Clone, Copy)]
pub struct LeaseWatchScan {
    /// The low-water mark at which to begin. `None` means the beginning of the list.
    pub from: Option<DateTime<Utc>>,
    /// The maximum number of rows to take.
    pub rows: i64,
    /// The maximum number of expired deliveries to return.
    pub limit: i64,
    /// The seconds by which `look_at` must have passed.
    pub overdue_seconds: f64,
    /// Whether to return only pushes.
    pub only_pushes: bool,
}

/// Removes the rows from the list whose `look_at` has passed, and puts back the deliveries that are still
/// held. Returns the deliveries whose lease had expired when the statement began.
///
/// The returned deliveries are neither locked nor on the list any more. In the same transaction, the
/// caller must reset each of them or put it back on the list with [`watch_leases`]. Otherwise its lease
/// would never end.
pub async fn take_watched_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    scan: LeaseWatchScan,
) -> QueryResult<Watched> {
    TAKE_WATCHED_LEASES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(scan.rows)
        .bind::<Nullable<Timestamptz>, _>(scan.from)
        .bind::<BigInt, _>(scan.limit)
        .bind::<Double, _>(scan.overdue_seconds)
        .bind::<Bool, _>(scan.only_pushes)
        .cached()
        .load_one(conn)
        .await
}

#[derive(QueryableByName)]
struct LookAtRow {
    #[diesel(sql_type = Timestamptz)]
    look_at: DateTime<Utc>,
}

/// Puts deliveries on the list, to be checked in `seconds`. Returns the time of the check, or `None` if there are
/// no deliveries. The check finds out whether they have a lease.
pub async fn watch_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    deliveries: &[DeliveryKey],
    seconds: f64,
) -> QueryResult<Option<DateTime<Utc>>> {
    let rows: Vec<LookAtRow> = statement!("watch_leases")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Double, _>(seconds)
        .bind::<Array<Integer>, _>(deliveries.iter().map(|key| key.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(deliveries.iter().map(|key| key.id).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(rows.as_slice().first().map(|row| row.look_at))
}

/// The result of one step through `deliveries`.
#[derive(Debug, QueryableByName)]
pub struct UnwatchedStep {
    #[diesel(sql_type = Nullable<Integer>)]
    last_namespace_id: Option<NamespaceId>,
    #[diesel(sql_type = Nullable<BigInt>)]
    last_id: Option<DeliveryId>,
    /// Deliveries with a lease that were missing on the list. They have been added.
    #[diesel(sql_type = Array<BigInt>)]
    pub unwatched: Vec<DeliveryId>,
    /// The time at which they are to be checked, which is now.
    #[diesel(sql_type = Timestamptz)]
    pub look_at: DateTime<Utc>,
}

impl UnwatchedStep {
    /// Returns the last delivery that was read, or `None` at the end of the table.
    pub fn last(&self) -> Option<DeliveryKey> {
        self.last_namespace_id.zip(self.last_id).map(|(namespace, id)| namespace.delivery(id))
    }
}

/// The statement behind [`watch_unwatched_leases`], public for the cost tests.
pub const WATCH_UNWATCHED_LEASES: Statement = statement!("watch_unwatched_leases");

/// Reads up to `rows` deliveries behind `after`, of all namespaces. Puts those on the list whose lease expired
/// `overdue_seconds` ago and that are missing on it.
pub async fn watch_unwatched_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    after: Option<DeliveryKey>,
    rows: i64,
    overdue_seconds: f64,
) -> QueryResult<UnwatchedStep> {
    WATCH_UNWATCHED_LEASES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Integer, _>(after.map_or(NamespaceId(0), |key| key.namespace))
        .bind::<BigInt, _>(after.map_or(DeliveryId(0), |key| key.id))
        .bind::<BigInt, _>(rows)
        .bind::<Double, _>(overdue_seconds)
        .cached()
        .load_one(conn)
        .await
}
