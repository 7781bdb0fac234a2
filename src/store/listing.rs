//! Lists of events that stay cheap at any size.
//!
//! Pages go by id. A filter that no index serves is applied to a bounded number of rows (the
//! *scan*), and the answer then carries a cursor even if it found less than a page. `total`
//! is counted the same way, and says whether it is exact.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, JoinOnDsl, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::sql_types::{Json, Nullable};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::events::{EventColumns, EventRow, WorkColumns};
use super::schema::{deliveries, events};
use crate::domain::status::Status;

/// Which events are wanted.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "named as in the contract")]
pub struct EventFilter {
    pub status: Option<Status>,
    pub tags: Vec<String>,
    pub event_type: Option<String>,
    pub worker_id: Option<String>,
    pub correlation_id: Option<String>,
    pub created_after: Option<DateTime<Utc>>,
    pub created_before: Option<DateTime<Utc>>,
}

impl EventFilter {
    /// Whether rows have to be read and thrown away.
    fn needs_scan(&self) -> bool {
        let status_needs_scan = match self.status {
            None | Some(Status::Failed | Status::Cancelled) => false,
            Some(Status::Pending | Status::Processing | Status::Completed) => true,
        };
        status_needs_scan
            || !self.tags.is_empty()
            || self.event_type.is_some()
            || self.worker_id.is_some()
            || self.created_after.is_some()
            || self.created_before.is_some()
    }
}

/// Which page.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Newest first?
    pub descending: bool,
    /// Go on behind this id.
    pub after: Option<i64>,
    /// Leave out so many.
    pub offset: i64,
    /// At most so many.
    pub limit: i64,
    /// Read at most so many rows for filters that no index serves.
    pub scan: i64,
}

/// A page, and what surrounds it.
#[derive(Debug)]
pub struct EventPage {
    /// The events, without payloads.
    pub events: Vec<EventRow>,
    /// Where to go on, if there may be more.
    pub next: Option<i64>,
    /// How many there are in all, as far as was counted.
    pub total: i64,
    /// Whether that is all of them.
    pub total_is_exact: bool,
}

type Joined = diesel::dsl::InnerJoin<
    events::table,
    diesel::dsl::On<deliveries::table, diesel::dsl::Eq<deliveries::id, events::id>>,
>;
type Boxed<'a> = diesel::dsl::IntoBoxed<'a, Joined, Pg>;

/// Lists events.
pub async fn list_events(
    conn: &mut AsyncPgConnection,
    namespace_id: i32,
    filter: &EventFilter,
    page: Page,
) -> QueryResult<EventPage> {
    let scan_end = scan_end(conn, namespace_id, filter, page).await?;
    let query = filtered(namespace_id, filter, page, scan_end);
    let rows: Vec<(EventColumns, WorkColumns)> = ordered(query, page)
        .offset(page.offset)
        .limit(page.limit)
        .select((
            // All columns of the event but its payload.
            (
                events::id,
                events::title,
                events::description,
                events::event_type,
                events::tags,
                events::labels,
                sql::<Nullable<Json>>("NULL::json"),
                events::priority,
                events::max_retries,
                events::ordering_key,
                events::correlation_id,
                events::traceparent,
                events::run_at,
                events::expires_at,
                events::created_at,
            ),
            WorkColumns::as_select(),
        ))
        .load(conn)
        .await?;
    let events: Vec<EventRow> = rows.into_iter().map(|(event, work)| EventRow { event, work }).collect();
    let page_end = events.last().filter(|_| events.len() as i64 == page.limit).map(|row| row.event.id);
    let (total, total_is_exact) = count(conn, namespace_id, filter, page).await?;
    Ok(EventPage { events, next: page_end.or(scan_end), total, total_is_exact })
}

/// Ids of events that match, oldest first, and where to go on if there may be more.
pub async fn find_events(
    conn: &mut AsyncPgConnection,
    namespace_id: i32,
    filter: &EventFilter,
    page: Page,
) -> QueryResult<(Vec<i64>, Option<i64>)> {
    let scan_end = scan_end(conn, namespace_id, filter, page).await?;
    let ids: Vec<i64> = ordered(filtered(namespace_id, filter, page, scan_end), page)
        .limit(page.limit)
        .select(events::id)
        .load(conn)
        .await?;
    let page_end = ids.last().copied().filter(|_| ids.len() as i64 == page.limit);
    Ok((ids, page_end.or(scan_end)))
}

/// Counts what matches, from the first page on, reading at most `scan` rows.
async fn count(
    conn: &mut AsyncPgConnection,
    namespace_id: i32,
    filter: &EventFilter,
    page: Page,
) -> QueryResult<(i64, bool)> {
    let whole = Page { after: None, offset: 0, ..page };
    let scan_end = scan_end(conn, namespace_id, filter, whole).await?;
    let ids: Vec<i64> = ordered(filtered(namespace_id, filter, whole, scan_end), whole)
        .limit(page.scan + 1)
        .select(events::id)
        .load(conn)
        .await?;
    let counted = ids.len() as i64;
    Ok((counted.min(page.scan), scan_end.is_none() && counted <= page.scan))
}

/// The last id that a bounded scan may look at; none if that is the end of the table.
async fn scan_end(
    conn: &mut AsyncPgConnection,
    namespace_id: i32,
    filter: &EventFilter,
    page: Page,
) -> QueryResult<Option<i64>> {
    if !filter.needs_scan() {
        return Ok(None);
    }
    ordered(indexed(namespace_id, filter, page), page)
        .offset(page.scan - 1)
        .limit(1)
        .select(events::id)
        .first(conn)
        .await
        .optional()
}

/// What the indexes can answer: ids, unhappy states, correlation.
fn indexed<'a>(namespace_id: i32, filter: &'a EventFilter, page: Page) -> Boxed<'a> {
    let mut query: Boxed<'a> = events::table
        .inner_join(deliveries::table.on(deliveries::id.eq(events::id)))
        .into_boxed()
        .filter(events::namespace_id.eq(namespace_id));
    if let Some(after) = page.after {
        // Said of both tables: from either of them a plan may start.
        query = if page.descending {
            query.filter(events::id.lt(after)).filter(deliveries::id.lt(after))
        } else {
            query.filter(events::id.gt(after)).filter(deliveries::id.gt(after))
        };
    }
    if let Some(correlation_id) = &filter.correlation_id {
        query = query.filter(events::correlation_id.eq(correlation_id));
    }
    if let Some(status @ (Status::Failed | Status::Cancelled)) = filter.status {
        query = query.filter(deliveries::unhappy_status.eq(status.as_str()));
    }
    query
}

fn filtered<'a>(namespace_id: i32, filter: &'a EventFilter, page: Page, scan_end: Option<i64>) -> Boxed<'a> {
    let mut query = indexed(namespace_id, filter, page);
    if let Some(end) = scan_end {
        query = if page.descending {
            query.filter(events::id.ge(end)).filter(deliveries::id.ge(end))
        } else {
            query.filter(events::id.le(end)).filter(deliveries::id.le(end))
        };
    }
    if let Some(status) = filter.status {
        query = query.filter(deliveries::status.eq(status.as_str()));
    }
    if !filter.tags.is_empty() {
        use diesel::PgArrayExpressionMethods as _;
        query = query.filter(events::tags.overlaps_with(&filter.tags));
    }
    if let Some(event_type) = &filter.event_type {
        query = query.filter(events::event_type.eq(event_type));
    }
    if let Some(worker_id) = &filter.worker_id {
        query = query.filter(deliveries::worker_id.eq(worker_id));
    }
    if let Some(time) = filter.created_after {
        query = query.filter(events::created_at.gt(time));
    }
    if let Some(time) = filter.created_before {
        query = query.filter(events::created_at.lt(time));
    }
    query
}

fn ordered<'a>(query: Boxed<'a>, page: Page) -> Boxed<'a> {
    if page.descending { query.order(events::id.desc()) } else { query.order(events::id.asc()) }
}
