//! Lists of log entries with a bounded cost.
//!
//! The entries of an event and those with a rare action have an index. All others are read in windows
//! of ids, see `log_windows`, unless the namespace has only a few, see `small_logs`.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use serde::Serialize;

use crate::domain::action::Action;
use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::log_times::{last_sample, span_of_times, time_at};
use crate::store::lists::log_windows::read_windows;
use crate::store::lists::pages::Page;
use crate::store::lists::small_logs::read_small_log;
use crate::store::lists::spans::{Examined, Span};
use crate::store::lists::worker_entries::read_entries_of_worker;
use crate::store::tables::event_log::LogEntry;

/// A filter for log entries. Its fields are named as in the API.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogFilter {
    pub event_id: Option<EventId>,
    pub worker_id: Option<String>,
    pub action: Option<Action>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

impl LogFilter {
    /// Returns the action, if so few entries have it that it is in an index.
    fn rare_action(&self) -> Option<Action> {
        self.action.filter(|action| !matches!(action, Action::Picked | Action::Completed))
    }

    /// Returns whether an entry matches.
    pub(crate) fn matches(&self, entry: &LogEntry) -> bool {
        self.event_id.is_none_or(|event_id| entry.event_id == event_id)
            && self.worker_id.as_ref().is_none_or(|worker| entry.worker_id.as_ref() == Some(worker))
            && self.action.is_none_or(|action| entry.action.0 == action)
            && self.since.is_none_or(|since| entry.created_at >= since)
            && self.until.is_none_or(|until| entry.created_at < until)
    }
}

/// A page of log entries.
#[derive(Debug, Default)]
pub struct LogPage {
    pub entries: Vec<LogEntry>,
    /// The position behind which the next page begins, if there may be more entries.
    pub end: Option<i64>,
    /// The time up to which was searched, if the page is not full although there may be more entries.
    pub searched_to: Option<DateTime<Utc>>,
    /// The position behind which later entries follow, if this is the last page and the oldest entries come first.
    pub tail: Option<i64>,
}

pub(super) const COLUMNS: &str = "id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms, \
     error_message, reason, next_retry_at, error_kind, response_excerpt, subscription_version, actor, lease_seconds, created_at";

/// Returns a page of the event log. Must run in a transaction, since it changes the planner's settings.
pub async fn list_log_entries(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &LogFilter,
    page: Page,
) -> QueryResult<LogPage> {
    list_log_entries_below(conn, scope, filter, page, i64::MAX).await
}

/// Returns a page of the part of the event log that has ids below `below`. Must run in a transaction, too.
pub(crate) async fn list_log_entries_below(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &LogFilter,
    page: Page,
    below: i64,
) -> QueryResult<LogPage> {
    // The index of blocks is read by bitmap scans, which connections have switched off.
    conn.batch_execute("SET LOCAL enable_bitmapscan = on").await?;
    let span = span_of_times(conn, scope, filter, page.descending).await?;
    let span = Span { below: span.below.min(below), ..span };
    let span = page.after.map_or(span, |after| span.behind(after));
    match (filter.event_id, filter.rare_action(), &filter.worker_id) {
        (Some(_), ..) | (_, Some(_), _) => read_index(conn, filter, span, page).await,
        (None, None, worker) => match (read_small_log(conn, filter, &span, page).await?, worker) {
            (Some(found), _) => Ok(found),
            (None, Some(_)) => read_entries_of_worker(conn, filter, span, page).await,
            (None, None) => read_windows(conn, filter, span, page).await,
        },
    }
}

/// Returns the id and the time of an entry of the namespace that is at most 64 entries before the last one up to
/// `position`, or `None` if there are fewer entries.
pub(crate) async fn find_entry_before(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    position: i64,
) -> QueryResult<Option<(i64, DateTime<Utc>)>> {
    let sample = last_sample(conn, &Span::all(scope.namespace, false), position).await?;
    Ok(sample.map(|sample| (sample.id, sample.created_at)))
}

/// A row of a step: an entry, or none if no entry of the step matches.
struct ReadRow {
    examined: Examined,
    entry: Option<LogEntry>,
}

impl QueryableByName<Pg> for ReadRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let id: Option<i64> = NamedRow::get::<Nullable<BigInt>, _>(row, "id")?;
        let entry = id.map(|_| LogEntry::build(row)).transpose()?;
        Ok(ReadRow { examined: Examined::build(row)?, entry })
    }
}

/// Reads entries along the index of the event or the action, at most `page.scan` of them.
async fn read_index(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    mut span: Span,
    page: Page,
) -> QueryResult<LogPage> {
    let mut found = LogPage::default();
    let (mut step, mut budget) = (page.limit, page.scan);
    while budget > 0 {
        let (ids, wanted) = (step.min(budget), page.limit - found.entries.len() as i64);
        let rows: Vec<ReadRow> = step_of_index(filter, &span, ids, wanted).load_all(conn).await?;
        let examined = rows.first().map(|row| row.examined).unwrap_or_default();
        found.entries.extend(rows.into_iter().filter_map(|row| row.entry));
        if found.entries.len() as i64 == page.limit {
            found.end = found.entries.last().map(|entry| entry.id);
            return Ok(found);
        }
        let Some(last_id) = examined.last_id.filter(|_| examined.ids == ids) else { return Ok(found) };
        span = span.behind(last_id);
        budget -= ids;
        step *= 4;
    }
    let position = span.edge();
    found.searched_to = time_at(conn, &span, position).await?.or_else(|| Some(Utc::now()));
    found.end = Some(position);
    Ok(found)
}

/// Returns the statement of a step: it reads `ids` entries along the index and returns the first `limit`
/// that match.
fn step_of_index<'q>(filter: &LogFilter, span: &Span, ids: i64, limit: i64) -> FilteredQuery<'q> {
    let (namespace, direction) = (span.namespace, span.direction());
    // Ordered by all columns of the index: with an order by id alone, the planner might sort all entries.
    let order = match filter.event_id {
        Some(_) => format!("id {direction}"),
        None => format!("action {direction}, id {direction}"),
    };
    let query = FilteredQuery::new("WITH found AS MATERIALIZED (");
    let query = match (filter.event_id, filter.rare_action()) {
        (Some(event_id), _) => {
            let query =
                query.sql(&format!("SELECT {COLUMNS} FROM waybill.event_trails WHERE namespace_id = {namespace}"));
            span.limit(query.and::<BigInt, _>("event_id =", event_id), "id")
                // Partitions more than a day older than the event are not searched. The day of margin is for a
                // database whose clock was set back.
                .sql(" AND created_at >= coalesce((SELECT created_at - interval '1 day' FROM waybill.events")
                .sql(&format!(" WHERE namespace_id = {namespace}"))
                .and::<BigInt, _>("id =", event_id)
                .sql("), '-infinity')")
        }
        (None, action) => {
            let query = query.sql(&format!(
                "SELECT {COLUMNS} FROM waybill.event_log WHERE namespace_id = {namespace} \
                 AND action <> 'PICKED' AND action <> 'COMPLETED' AND (action, id) > ("
            ));
            let action = action.map_or("", Action::as_str);
            query
                .sql(&format!("'{action}', "))
                .bind::<BigInt, _>(span.above)
                .sql(&format!(") AND (action, id) < ('{action}', "))
                .bind::<BigInt, _>(span.below)
                .sql(")")
        }
    };
    let query = query
        .and_time_range("created_at", filter.since, filter.until)
        .sql(&format!(" ORDER BY {order} LIMIT {ids}"))
        .sql(&format!(
            "), examined AS MATERIALIZED (SELECT count(*) AS ids, {}(id) AS last_id FROM found)",
            span.last()
        ))
        .sql(" SELECT ids, last_id, entries.* FROM examined LEFT JOIN (SELECT * FROM found WHERE true");
    conditions(query, filter)
        .sql(&format!(" ORDER BY id {direction} LIMIT {limit}) entries ON true ORDER BY id {direction}"))
}

/// Appends the conditions that no index serves.
pub(super) fn conditions<'q>(query: FilteredQuery<'q>, filter: &LogFilter) -> FilteredQuery<'q> {
    let query = query.and_given::<Text, _>("worker_id =", filter.worker_id.clone());
    match filter.action {
        Some(action) => query.sql(&format!(" AND action = '{}'", action.as_str())),
        None => query,
    }
}
