//! The list of leases to look at: what is held, and what was held until a moment ago.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::DeliveryId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};

/// What was found on the rows that were taken off the list.
#[derive(Debug, QueryableByName)]
pub struct Watched {
    /// Nothing on the list is to be looked at before this.
    #[diesel(sql_type = Timestamptz)]
    pub head: DateTime<Utc>,
    /// How many rows were taken.
    #[diesel(sql_type = BigInt)]
    pub taken: i64,
    /// Deliveries whose lease has run out, the longest first.
    #[diesel(sql_type = Array<BigInt>)]
    pub expired: Vec<DeliveryId>,
}

/// The statement behind [`take_watched_leases`], for those who measure it.
pub const TAKE_WATCHED_LEASES: Statement = statement!("take_watched_leases");

/// What to take off the list.
#[derive(Debug, Clone, Copy)]
pub struct WatchLook {
    /// From when on; none: from the very beginning.
    pub from: Option<DateTime<Utc>>,
    /// How many rows at most.
    pub rows: i64,
    /// How many deliveries at most whose lease has run out.
    pub limit: i64,
    /// For how many seconds their time must have come.
    pub overdue_seconds: f64,
    /// Whether only pushes are meant.
    pub only_pushes: bool,
}

/// Takes rows off the list whose time has come, and puts back what is still held; answers
/// deliveries whose lease had run out when the statement began. They are not locked, and not on
/// the list any more: in the same transaction each of them must be taken back, or put back on the
/// list with [`watch_leases`], since nothing else will remind anybody of it.
pub async fn take_watched_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    look: WatchLook,
) -> QueryResult<Watched> {
    TAKE_WATCHED_LEASES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(look.rows)
        .bind::<Nullable<Timestamptz>, _>(look.from)
        .bind::<BigInt, _>(look.limit)
        .bind::<Double, _>(look.overdue_seconds)
        .bind::<Bool, _>(look.only_pushes)
        .cached()
        .get_result(conn)
        .await
}

#[derive(QueryableByName)]
struct LookAt {
    #[diesel(sql_type = Timestamptz)]
    look_at: DateTime<Utc>,
}

/// Puts deliveries on the list, to be looked at in `seconds` seconds; returns when that is. Whether
/// they have a lease is found out then.
pub async fn watch_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    ids: &[DeliveryId],
    seconds: f64,
) -> QueryResult<DateTime<Utc>> {
    let row: LookAt = statement!("watch_leases")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Double, _>(seconds)
        .bind::<Array<BigInt>, _>(ids)
        .cached()
        .get_result(conn)
        .await?;
    Ok(row.look_at)
}

/// One step through `deliveries`.
#[derive(Debug, QueryableByName)]
pub struct UnwatchedStep {
    /// The last id that was looked at; none behind the last row of the table.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub last_id: Option<DeliveryId>,
    /// Deliveries that had a lease and were not on the list; they are on it now.
    #[diesel(sql_type = Array<BigInt>)]
    pub unwatched: Vec<DeliveryId>,
    /// The time at which they are to be looked at: at once.
    #[diesel(sql_type = Timestamptz)]
    pub look_at: DateTime<Utc>,
}

/// The statement behind [`watch_unwatched_leases`], for those who measure it.
pub const WATCH_UNWATCHED_LEASES: Statement = statement!("watch_unwatched_leases");

/// Looks at up to `rows` deliveries behind `after_id`, and puts those on the list whose lease ran
/// out `overdue_seconds` ago and that are not on it.
pub async fn watch_unwatched_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    after_id: Option<DeliveryId>,
    rows: i64,
    overdue_seconds: f64,
) -> QueryResult<UnwatchedStep> {
    WATCH_UNWATCHED_LEASES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(after_id.map_or(0, |id| id.0))
        .bind::<BigInt, _>(rows)
        .bind::<Double, _>(overdue_seconds)
        .cached()
        .get_result(conn)
        .await
}

/// A delivery that somebody holds.
#[derive(Debug, QueryableByName)]
pub struct HeldDelivery {
    /// Its id.
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
    /// Who holds it.
    #[diesel(sql_type = Text)]
    pub worker_id: String,
}

/// Returns at most `limit` deliveries whose lease has run out, or whose worker has given no sign
/// of life for `silent_seconds`.
pub async fn find_stale(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    silent_seconds: Option<f64>,
    limit: i64,
) -> QueryResult<Vec<HeldDelivery>> {
    statement!("find_stale_deliveries")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Double>, _>(silent_seconds)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<BigInt, _>(limit)
        .cached()
        .load(conn)
        .await
}
