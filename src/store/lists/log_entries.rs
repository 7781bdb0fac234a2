//! Lists of log entries with a bounded cost.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::sql_types::{Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::Serialize;

use crate::domain::action::Action;
use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::store::lists::pages::{Page, page_end};
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::schema::event_log;

/// A filter for log entries. Its fields are named as in the API.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogFilter {
    pub event_id: Option<EventId>,
    pub worker_id: Option<String>,
    pub action: Option<Action>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

/// Returns a page of the event log, and the position of the next page if there may be more. A filter
/// without an index is applied to a bounded number of rows.
pub async fn list_log_entries(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &LogFilter,
    page: Page,
) -> QueryResult<(Vec<LogEntry>, Option<i64>)> {
    let mut query = indexed(scope, filter, page);
    let mut scan_end: Option<i64> = None;
    if filter.worker_id.is_some() || filter.action.is_some() {
        let last = indexed(scope, filter, page).offset(page.scan - 1).limit(1).select(event_log::id);
        scan_end = last.first(conn).await.optional()?;
    }
    query = match (scan_end, page.descending) {
        (Some(end), false) => query.filter(event_log::id.le(end)),
        (Some(end), true) => query.filter(event_log::id.ge(end)),
        (None, _) => query,
    };
    if let Some(worker_id) = &filter.worker_id {
        query = query.filter(event_log::worker_id.eq(worker_id));
    }
    if let Some(action) = filter.action {
        query = query.filter(sql::<Bool>("action = ").bind::<Text, _>(action.as_str()).sql("::waybill.action"));
    }
    let entries: Vec<LogEntry> = query.limit(page.limit).select(LogEntry::as_select()).load(conn).await?;
    let next = page_end(&entries, page.limit, |entry| entry.id).or(scan_end);
    Ok((entries, next))
}

/// Returns the ordered query with the conditions that an index or the partitions serve.
fn indexed(scope: &Scope, filter: &LogFilter, page: Page) -> event_log::BoxedQuery<'static, Pg> {
    let mut query = event_log::table.filter(event_log::namespace_id.eq(scope.namespace)).into_boxed();
    if let Some(event_id) = filter.event_id {
        // A range, and an order by both columns of the index: with `=` the planner might walk all ids.
        query = query.filter(event_log::event_id.ge(event_id)).filter(event_log::event_id.le(event_id));
        query = match page.descending {
            false => query.order(event_log::event_id),
            true => query.order(event_log::event_id.desc()),
        };
    }
    if let Some(since) = filter.since {
        query = query.filter(event_log::created_at.ge(since));
    }
    if let Some(until) = filter.until {
        query = query.filter(event_log::created_at.lt(until));
    }
    query = match (page.after, page.descending) {
        (Some(after), false) => query.filter(event_log::id.gt(after)),
        (Some(after), true) => query.filter(event_log::id.lt(after)),
        (None, _) => query,
    };
    match page.descending {
        false => query.then_order_by(event_log::id),
        true => query.then_order_by(event_log::id.desc()),
    }
}
