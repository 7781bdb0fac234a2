//! Reads the log entries of one push, by an index of their own.
//!
//! An event may have one push per subscription, and `event_log_by_event` contains the entries of all of
//! them. A search for the entries of one push in that index would read the entries of all.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::OptionalExtension;
use diesel::sql_types::{BigInt, Integer, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::action::Action;
use crate::domain::delivery::Delivery;
use crate::domain::ids::{DeliveryId, LeaseId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::event_log::{LogEntry, Settlement};

/// Returns the last `limit` attempts of a push, oldest first. Partitions more than a day older than
/// `published_at` are not searched. The day of margin is for a database whose clock was set back.
pub async fn attempts_of_push(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    delivery_id: DeliveryId,
    published_at: DateTime<Utc>,
    limit: i64,
) -> QueryResult<Vec<LogEntry>> {
    let mut attempts: Vec<LogEntry> = statement!("attempts_of_push")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(delivery_id)
        .bind::<Timestamptz, _>(published_at)
        .bind::<BigInt, _>(limit)
        .cached()
        .load(conn)
        .await?;
    attempts.reverse();
    Ok(attempts)
}

/// Returns the entry of `action` that the dispatcher logged under one claim of a push.
pub(in crate::store) async fn find_push_entry(
    conn: &mut AsyncPgConnection,
    push: &Delivery,
    lease_id: LeaseId,
    action: Action,
) -> QueryResult<Option<LogEntry>> {
    statement!("find_push_entry")
        .query()
        .bind::<Integer, _>(push.namespace)
        .bind::<BigInt, _>(push.event_id)
        .bind::<BigInt, _>(push.id)
        .bind::<BigInt, _>(lease_id)
        .bind::<Text, _>(action.as_str())
        .cached()
        .load_one(conn)
        .await
        .optional()
}

/// Returns the settlement of a claim of a push, or `None` if it has not been settled.
pub(in crate::store) async fn find_push_settlement(
    conn: &mut AsyncPgConnection,
    push: &Delivery,
    lease_id: LeaseId,
) -> QueryResult<Option<Settlement>> {
    statement!("find_push_settlement")
        .query()
        .bind::<Integer, _>(push.namespace)
        .bind::<BigInt, _>(push.event_id)
        .bind::<BigInt, _>(push.id)
        .bind::<BigInt, _>(lease_id)
        .cached()
        .load_one(conn)
        .await
        .optional()
}
