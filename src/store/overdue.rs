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
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::cached::CachedExt;
use super::pages::IdRow;
use crate::domain::ids::DeliveryId;

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

/// Joins the locked row of candidate `c`; the key's lock is tried before the row's. `$still` is
/// checked again on the locked version. (A comparison there is written as `(…) IS TRUE`, which no
/// index serves, so that the row is always looked up by its id.)
macro_rules! lock_row {
    ($still:literal) => {
        concat!(
            " CROSS JOIN LATERAL (SELECT id, event_id, subscription_id, namespace_id, ordering_key, order_seq, rescue_count \
             FROM waybill.deliveries WHERE id = c.id AND ",
            $still,
            " AND (ordering_key IS NULL OR pg_try_advisory_xact_lock(1463900482, \
                  (hashtextextended(namespace_id || ':' || ordering_key, 0) & 1023)::integer)) \
             FOR UPDATE SKIP LOCKED) d"
        )
    };
}

/// Joins what ending delivery `d` would write, too, locked; keeps the rows for which that could
/// be done. `$ends` says whether it is ended at all.
macro_rules! lock_what_follows {
    ($ends:literal) => {
        concat!(
            " LEFT JOIN LATERAL (SELECT id FROM waybill.deliveries WHERE id = d.event_id \
              AND d.subscription_id IS NOT NULL AND open_deliveries IS NOT NULL AND ",
            $ends,
            " OFFSET 0) counts ON true \
          LEFT JOIN LATERAL (SELECT true AS is_locked FROM waybill.deliveries WHERE id = counts.id \
              FOR UPDATE SKIP LOCKED) counts_lock ON true \
          LEFT JOIN LATERAL (SELECT id, status = 'PENDING' AND ready_seq IS NULL AND due_at IS NULL AS waits_for_turn \
              FROM waybill.deliveries WHERE namespace_id = d.namespace_id AND ordering_key = d.ordering_key \
              AND coalesce(subscription_id, 0) = coalesce(d.subscription_id, 0) AND order_seq > d.order_seq \
              ORDER BY order_seq LIMIT 1) next ON true \
          LEFT JOIN LATERAL (SELECT true AS is_locked FROM waybill.deliveries WHERE id = next.id \
              AND next.waits_for_turn FOR UPDATE SKIP LOCKED) next_lock ON true \
          WHERE (counts.id IS NULL OR counts_lock.is_locked) \
            AND (next.waits_for_turn IS NOT TRUE OR next_lock.is_locked)"
        )
    };
}

/// Locks up to `$2` deliveries for which a column's moment has come, the most overdue first, and
/// tells where the first row stood, locked or not. The scan begins at `$3`. Rows are read off the index
/// until enough of them are locked, or 20 times as many have been read: each that is passed over
/// costs a look-up, and may cost a row lock.
///
/// The head is never later than the next moment: another server may let something wait that comes
/// before all that this scan has seen, but only for a moment that is still to come.
macro_rules! lock_overdue {
    ($column:literal, $and:literal, $still:literal, $follows:expr) => {
        concat!(
            "WITH locked AS MATERIALIZED (SELECT d.id FROM (SELECT id FROM waybill.deliveries WHERE ",
            $column,
            " >= coalesce($3, '-infinity') AND ",
            $column,
            " <= coalesce($1, now()) ",
            $and,
            " ORDER BY ",
            $column,
            " LIMIT $2 * 20) c",
            lock_row!($still),
            $follows,
            " LIMIT $2) \
             SELECT coalesce((SELECT array_agg(id) FROM locked), '{}') AS ids, \
             least(head.at, coalesce($1, now()) + interval '1 microsecond') AS head, \
             extract(epoch FROM head.at - coalesce($1, now()))::float8 AS head_in_seconds \
             FROM (SELECT) one LEFT JOIN (SELECT ",
            $column,
            " AS at FROM waybill.deliveries WHERE ",
            $column,
            " >= coalesce($3, '-infinity') ORDER BY ",
            $column,
            " LIMIT 1) head ON true"
        )
    };
}

/// The statements behind [`lock_overdue`], for those who measure them.
pub fn lock_overdue_sql(sweep: Sweep) -> &'static str {
    match sweep {
        // Work that falls due ends nothing: if its key lets anybody in, then itself.
        Sweep::Due => lock_overdue!("due_at", "", "(due_at <= coalesce($1, now())) IS TRUE", ""),
        Sweep::Expired => lock_overdue!(
            "expires_at",
            "AND status = 'PENDING'",
            "status = 'PENDING' AND (expires_at <= coalesce($1, now())) IS TRUE",
            lock_what_follows!("true")
        ),
    }
}

/// Locks deliveries whose time has come, from a moment on, passing over what others have locked.
pub async fn lock_overdue(
    conn: &mut AsyncPgConnection,
    sweep: Sweep,
    now: Option<DateTime<Utc>>,
    from: Option<DateTime<Utc>>,
    limit: i64,
) -> QueryResult<Overdue> {
    sql_query(lock_overdue_sql(sweep))
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(limit)
        .bind::<Nullable<Timestamptz>, _>(from)
        .cached()
        .get_result(conn)
        .await
}

/// The statement behind [`lock_expired_leases`], for those who measure it.
pub const LOCK_EXPIRED_LEASES: &str = concat!(
    "SELECT d.id FROM unnest($2) AS c(id)",
    lock_row!("lease_expires_at <= coalesce($1, now())"),
    // A lease that has run out ends nothing, unless it was one too many.
    lock_what_follows!("d.rescue_count + 1 >= $3")
);

/// Locks those of these deliveries whose lease has run out, passing over what others have locked.
pub async fn lock_expired_leases(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    ids: &[DeliveryId],
    poison_after: i32,
) -> QueryResult<Vec<DeliveryId>> {
    let rows: Vec<IdRow> = sql_query(LOCK_EXPIRED_LEASES)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<BigInt>, _>(ids)
        .bind::<Integer, _>(poison_after)
        .cached()
        .load(conn)
        .await?;
    Ok(IdRow::ids(rows, DeliveryId))
}
