//! The list of leases to look at: what is held, and what was held until a moment ago.

use chrono::{DateTime, Utc};
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::cached::CachedExt;

/// What was found on the rows that were taken off the list.
#[derive(Debug, QueryableByName)]
pub struct Watched {
    /// Where the first row stood, its time come or not: nothing lies before it.
    #[diesel(sql_type = Timestamptz)]
    pub head: DateTime<Utc>,
    /// How many rows were taken.
    #[diesel(sql_type = BigInt)]
    pub taken: i64,
    /// Deliveries whose lease has run out, the longest first.
    #[diesel(sql_type = Array<BigInt>)]
    pub expired: Vec<i64>,
}

/// The statement behind [`take_watched_leases`], for those who measure it.
pub const TAKE_WATCHED_LEASES: &str = include_str!("sql/take_watched_leases.sql");

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
/// deliveries whose lease has run out. Whoever acts on them does so in the same transaction:
/// nothing else will remind anybody of them.
pub async fn take_watched_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    look: WatchLook,
) -> QueryResult<Watched> {
    sql_query(TAKE_WATCHED_LEASES)
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

/// A delivery that somebody holds.
#[derive(Debug, QueryableByName)]
pub struct HeldDelivery {
    /// Its id.
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    /// Who holds it.
    #[diesel(sql_type = Text)]
    pub worker_id: String,
}

/// Returns at most `limit` deliveries whose lease has run out, or whose worker has given no sign
/// of life for `silent_seconds`.
pub async fn find_stale(
    conn: &mut AsyncPgConnection,
    namespace_id: i32,
    silent_seconds: Option<f64>,
    now: Option<DateTime<Utc>>,
    limit: i64,
) -> QueryResult<Vec<HeldDelivery>> {
    sql_query(include_str!("sql/find_stale_deliveries.sql"))
        .bind::<Integer, _>(namespace_id)
        .bind::<Nullable<Double>, _>(silent_seconds)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(limit)
        .cached()
        .load(conn)
        .await
}
