//! Deliveries whose time has come, found and locked in one statement that waits for nobody.
//!
//! A row that somebody else has locked is passed over, and so is a row whose ordering key is
//! locked: one that is held for long must not hold up all the others. A lock that is tried and
//! not waited for cannot be part of a deadlock, so the usual order of locks does not matter here.
//!
//! Whoever ends a delivery also writes two other rows: the event's own row, if that counts what
//! became of pushes, and the next row of the ordering key, which enters `ready`. So these are
//! locked in the same way, and the delivery is passed over if they cannot be.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::DeliveryId;
use crate::store::connection::cached::CachedExt;
use crate::store::lists::pages::IdRow;
use crate::store::statement::{Statement, statement};

/// Which deliveries a sweep looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Waiting for a time that has come.
    Due,
    /// Pending and worthless.
    Expired,
}

/// What a sweep found.
#[derive(Debug, QueryableByName)]
pub struct Overdue {
    /// Whose time has come, the most overdue first. Their rows are locked, and their keys.
    #[diesel(sql_type = Array<BigInt>)]
    pub ids: Vec<DeliveryId>,
    /// Nothing waits for an earlier moment than this, be it locked or not.
    #[diesel(sql_type = Timestamptz)]
    pub head: DateTime<Utc>,
    /// How many seconds from now the first moment is that anything waits for.
    #[diesel(sql_type = Nullable<Double>)]
    pub head_in_seconds: Option<f64>,
}

/// The statement behind [`lock_overdue`] for [`Sweep::Due`].
pub const LOCK_DUE: Statement = statement!("lock_due");

/// The statement behind [`lock_overdue`] for [`Sweep::Expired`].
pub const LOCK_EXPIRED: Statement = statement!("lock_expired");

/// The statement behind [`lock_expired_leases`].
pub const LOCK_EXPIRED_LEASES: Statement = statement!("lock_expired_leases");

/// Locks deliveries whose time has come, from a moment on, passing over what others have locked.
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
        .get_result(conn)
        .await
}

/// Locks those of these deliveries whose lease has run out, passing over what others have locked.
pub async fn lock_expired_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    ids: &[DeliveryId],
    poison_after: i32,
) -> QueryResult<Vec<DeliveryId>> {
    let rows: Vec<IdRow> = LOCK_EXPIRED_LEASES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<BigInt>, _>(ids)
        .bind::<Integer, _>(poison_after)
        .cached()
        .load(conn)
        .await?;
    Ok(IdRow::ids(rows, DeliveryId))
}
