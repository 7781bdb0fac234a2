//! Appends to the event log, and reads it.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, Queryable, QueryableByName, Selectable};
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::action::Action;
use crate::domain::attempt::ErrorKind;
use crate::domain::delivery::{Delivery, LogLine, PushRecord};
use crate::domain::ids::{DeliveryId, EventId, EventKey, LeaseId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::pages::IdRow;
use crate::store::statement::statement;
use crate::store::tables::columns::ActionColumn;
use crate::store::tables::events::column_or_null;
use crate::store::tables::push_log::{find_push_entry, find_push_settlement};
use crate::store::tables::schema::event_log;

/// An entry of the event log. The migration describes the columns.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = event_log, check_for_backend(diesel::pg::Pg))]
pub struct LogEntry {
    pub id: i64,
    pub event_id: EventId,
    /// The push. `None` for the event's own work.
    pub delivery_id: Option<DeliveryId>,
    pub action: ActionColumn,
    pub worker_id: Option<String>,
    pub lease_id: LeaseId,
    pub attempt: i32,
    pub status_code: Option<i32>,
    pub execution_time_ms: Option<i64>,
    pub error_message: Option<String>,
    pub reason: Option<String>,
    pub next_retry_at: Option<DateTime<Utc>>,
    pub error_kind: Option<String>,
    pub response_excerpt: Option<String>,
    pub subscription_version: Option<i32>,
    pub actor: Option<String>,
    /// The length of the lease of a claim. `None` means the default, and of pushes nothing.
    pub lease_seconds: Option<f32>,
    pub created_at: DateTime<Utc>,
}

/// Appends lines. Returns the entries in the order of the lines.
pub(crate) async fn append_log(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    lines: &[LogLine],
) -> QueryResult<Vec<LogEntry>> {
    let all: Vec<&LogLine> = lines.iter().collect();
    let pushes: Vec<&PushRecord> = lines.iter().map(|line| &line.push).collect();
    let mut entries: Vec<LogEntry> = statement!("append_log")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(lines.iter().map(|l| l.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(lines.iter().map(|l| l.event_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(lines.iter().map(|l| l.delivery_id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(lines.iter().map(|l| l.action.as_str()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(lines.iter().map(|l| l.worker_id.as_deref()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(lines.iter().map(|l| l.lease_id).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(lines.iter().map(|l| l.attempt).collect::<Vec<_>>())
        .bind::<Array<Nullable<Integer>>, _>(lines.iter().map(|l| l.status_code).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(lines.iter().map(|l| l.execution_time_ms).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(lines.iter().map(|l| l.error_message.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(lines.iter().map(|l| l.reason.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Timestamptz>>, _>(lines.iter().map(|l| l.next_retry_at).collect::<Vec<_>>())
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&pushes, |push| {
            push.error_kind.map(ErrorKind::as_str)
        }))
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&pushes, |push| push.response_excerpt.as_deref()))
        .bind::<Nullable<Array<Nullable<Integer>>>, _>(column_or_null(&pushes, |push| push.subscription_version))
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&all, |line| line.actor.as_deref()))
        .cached()
        .load(conn)
        .await?;
    // Ids were assigned in the order of the lines.
    entries.sort_by_key(|entry| entry.id);
    Ok(entries)
}

/// Returns the entry of a worker's `action` under one claim.
pub(crate) async fn find_entry(
    conn: &mut AsyncPgConnection,
    delivery: &Delivery,
    lease_id: LeaseId,
    action: Action,
) -> QueryResult<Option<LogEntry>> {
    if delivery.is_push() {
        return find_push_entry(conn, delivery, lease_id, action).await;
    }
    statement!("find_log_entry")
        .query()
        .bind::<Integer, _>(delivery.namespace)
        .bind::<BigInt, _>(delivery.event_id)
        .bind::<BigInt, _>(lease_id)
        .bind::<Text, _>(action.as_str())
        .cached()
        .load_one(conn)
        .await
        .optional()
}

/// Returns the lease of a worker's latest claim of an event's own delivery.
pub(crate) async fn find_latest_claim_of(
    conn: &mut AsyncPgConnection,
    event: EventKey,
    worker_id: &str,
) -> QueryResult<Option<LeaseId>> {
    let row: Option<IdRow> = statement!("find_latest_claim_of")
        .query()
        .bind::<Integer, _>(event.namespace)
        .bind::<BigInt, _>(event.id)
        .bind::<Text, _>(worker_id)
        .cached()
        .load_one(conn)
        .await
        .optional()?;
    Ok(row.map(|row| LeaseId(row.id)))
}

/// The recorded settlement of a claim.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct Settlement {
    #[diesel(sql_type = Text)]
    pub action: ActionColumn,
    /// The worker that made the claim.
    #[diesel(sql_type = Text)]
    pub worker_id: String,
}

/// Returns the settlement of a claim, or `None` if it has not been settled.
pub(crate) async fn find_settlement(
    conn: &mut AsyncPgConnection,
    delivery: &Delivery,
    lease_id: LeaseId,
) -> QueryResult<Option<Settlement>> {
    if delivery.is_push() {
        return find_push_settlement(conn, delivery, lease_id).await;
    }
    statement!("find_settlement")
        .query()
        .bind::<Integer, _>(delivery.namespace)
        .bind::<BigInt, _>(delivery.event_id)
        .bind::<BigInt, _>(lease_id)
        .cached()
        .load_one(conn)
        .await
        .optional()
}

/// Returns the last `limit` log entries of an event, oldest first.
pub(crate) async fn latest_logs_of_event(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_id: EventId,
    limit: i64,
) -> QueryResult<Vec<LogEntry>> {
    let mut entries: Vec<LogEntry> = statement!("latest_logs_of_event")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(event_id)
        .bind::<BigInt, _>(limit)
        .cached()
        .load(conn)
        .await?;
    entries.reverse();
    Ok(entries)
}

/// Returns the number of log entries of an event with ids below `below`, up to `most`.
pub(crate) async fn count_earlier_logs(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_id: EventId,
    below: i64,
    most: i64,
) -> QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Counted {
        #[diesel(sql_type = BigInt)]
        entries: i64,
    }
    let query = statement!("count_earlier_logs").query().bind::<Integer, _>(scope.namespace);
    let query = query.bind::<BigInt, _>(event_id).bind::<BigInt, _>(below).bind::<BigInt, _>(most);
    let counted: Counted = query.cached().load_one(conn).await?;
    Ok(counted.entries)
}

/// Returns the first `limit` log entries of an event, oldest first.
pub(crate) async fn logs_of_event(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_id: EventId,
    limit: i64,
) -> QueryResult<Vec<LogEntry>> {
    statement!("logs_of_event")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(event_id)
        .bind::<BigInt, _>(limit)
        .cached()
        .load(conn)
        .await
}
