//! The audit trail of one push, read by its own index.
//!
//! An event has as many pushes as there are subscriptions, and `event_log_by_event` holds the lines
//! of all of them: looked for there, the lines of one push would cost what all pushes of its event
//! have left behind.

use chrono::{DateTime, Utc};
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::cached::CachedExt;
use super::columns::ActionColumn;
use super::event_log::{LogEntry, Settlement};
use crate::domain::action::Action;

/// The lines of push `$1` about how its claims ended, oldest lines from `$2` on. The conditions are
/// those of the index, word for word. `OFFSET 0` keeps the planner from walking another index in
/// the order of ids.
macro_rules! lines_of_push {
    ($select:literal, $which:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM (SELECT * FROM waybill.event_log \
                    WHERE delivery_id = $1 AND delivery_id <> event_id AND action <> 'PICKED' \
                      AND created_at >= coalesce($2 - interval '1 day', '-infinity') OFFSET 0) l \
              WHERE worker_id IS NOT NULL AND ",
            $which
        )
    };
}

/// Returns the attempts to push a delivery of an event published at `published_at`, oldest first:
/// the last `limit` of them. Days of the log before that are not searched; the day of margin is for
/// a database whose clock was set back.
pub async fn attempts_of_push(
    conn: &mut AsyncPgConnection,
    delivery_id: i64,
    published_at: DateTime<Utc>,
    limit: i64,
) -> QueryResult<Vec<LogEntry>> {
    let sql = lines_of_push!("*", "action IN ('COMPLETED', 'FAILED') ORDER BY id DESC LIMIT $3");
    let mut attempts: Vec<LogEntry> = sql_query(sql)
        .bind::<BigInt, _>(delivery_id)
        .bind::<Nullable<Timestamptz>, _>(Some(published_at))
        .bind::<BigInt, _>(limit)
        .cached()
        .load(conn)
        .await?;
    attempts.reverse();
    Ok(attempts)
}

/// Returns the entry of the dispatcher's `action` under one claim of a push.
pub(super) async fn find_push_entry(
    conn: &mut AsyncPgConnection,
    delivery_id: i64,
    lease_id: i64,
    action: Action,
) -> QueryResult<Option<LogEntry>> {
    sql_query(lines_of_push!("*", "lease_id = $3 AND action = $4 ORDER BY id DESC LIMIT 1"))
        .bind::<BigInt, _>(delivery_id)
        .bind::<Nullable<Timestamptz>, _>(None::<DateTime<Utc>>)
        .bind::<BigInt, _>(lease_id)
        .bind::<Text, _>(action.as_str())
        .cached()
        .get_result(conn)
        .await
        .optional()
}

#[derive(QueryableByName)]
struct SettlementRow {
    #[diesel(sql_type = Text)]
    action: ActionColumn,
    #[diesel(sql_type = Text)]
    worker_id: String,
}

/// Returns how a claim of a push was settled.
pub(super) async fn find_push_settlement(
    conn: &mut AsyncPgConnection,
    delivery_id: i64,
    lease_id: i64,
) -> QueryResult<Option<Settlement>> {
    let sql = lines_of_push!(
        "action, worker_id",
        "lease_id = $3 AND action IN ('COMPLETED', 'FAILED', 'RELEASED') ORDER BY id LIMIT 1"
    );
    let settled: Option<SettlementRow> = sql_query(sql)
        .bind::<BigInt, _>(delivery_id)
        .bind::<Nullable<Timestamptz>, _>(None::<DateTime<Utc>>)
        .bind::<BigInt, _>(lease_id)
        .cached()
        .get_result(conn)
        .await
        .optional()?;
    Ok(settled.map(|row| Settlement { action: row.action.0, worker_id: row.worker_id }))
}
