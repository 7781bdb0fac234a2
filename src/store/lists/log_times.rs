//! From times to ids of the event log, and back, by every 64th entry of a namespace.
//!
//! Entries are almost in the order of their times: an entry gets its id within the statement or the
//! transaction whose start is its `created_at`.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::AsyncPgConnection;

use crate::domain::scope::Scope;
use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::log_entries::LogFilter;
use crate::store::lists::pages::IdRow;
use crate::store::lists::spans::Span;

/// How much later than its `created_at` an entry may have got its id. A database clock that was set back
/// by more can hide entries from a list by time.
const MARGIN: TimeDelta = TimeDelta::seconds(60);

/// An entry whose id is a multiple of 64.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(super) struct Sample {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
}

/// Begins a query of samples.
pub(super) fn samples<'q>(span: &Span) -> FilteredQuery<'q> {
    let namespace = span.namespace;
    FilteredQuery::new(format!(
        "SELECT id, created_at FROM waybill.event_log WHERE namespace_id = {namespace} AND id % 64 = 0"
    ))
}

/// Returns the ids among which all entries lie whose time matches the filter.
pub(super) async fn span_of_times(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &LogFilter,
    descending: bool,
) -> QueryResult<Span> {
    let mut span = Span::all(scope.namespace, descending);
    if let Some(since) = filter.since.and_then(|since| since.checked_sub_signed(MARGIN)) {
        let statement = samples(&span).and::<Timestamptz, _>("created_at <", since);
        let rows: Vec<Sample> = statement.load(conn, "created_at DESC, id DESC", 0, 1).await?;
        span.above = rows.first().map_or(span.above, |sample| sample.id);
    }
    if let Some(until) = filter.until.and_then(|until| until.checked_add_signed(MARGIN)) {
        let statement = samples(&span).and::<Timestamptz, _>("created_at >=", until);
        let rows: Vec<Sample> = statement.load(conn, "created_at, id", 0, 1).await?;
        span.below = rows.first().map_or(span.below, |sample| sample.id);
    }
    Ok(span)
}

/// Returns the highest id that an entry may have.
pub(super) async fn last_id(conn: &mut AsyncPgConnection) -> QueryResult<i64> {
    let statement = FilteredQuery::new("SELECT last_value AS id FROM waybill.event_log_ids");
    let rows: Vec<IdRow> = statement.load_all(conn).await?;
    Ok(rows.first().map_or(0, |row| row.id))
}

/// Returns the time of the last sample up to a position.
pub(super) async fn time_at(
    conn: &mut AsyncPgConnection,
    span: &Span,
    position: i64,
) -> QueryResult<Option<DateTime<Utc>>> {
    Ok(last_sample(conn, span, position).await?.map(|sample| sample.created_at))
}

/// Returns the last sample up to a position.
pub(super) async fn last_sample(
    conn: &mut AsyncPgConnection,
    span: &Span,
    position: i64,
) -> QueryResult<Option<Sample>> {
    let (up_to, order) = if span.descending { ("id >=", "id") } else { ("id <=", "id DESC") };
    let rows: Vec<Sample> = samples(span).and::<BigInt, _>(up_to, position).load(conn, order, 0, 1).await?;
    Ok(rows.first().copied())
}
