//! From times to ids, and back.
//!
//! Ids are assigned within the publishing transaction, whose start is `created_at`, so events are almost
//! in the order of their times. Every 64th event is in an index by time. Between the two that enclose a
//! range of times, with a margin, each event is checked.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::AsyncPgConnection;

use crate::domain::scope::Scope;
use crate::store::lists::events::EventFilter;
use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::pages::IdRow;
use crate::store::lists::spans::Span;

/// How much later than its `created_at` an event may have got its id. Statements are cancelled sooner. A
/// database clock that was set back by more can hide events.
const MARGIN: TimeDelta = TimeDelta::seconds(10);

/// Returns the ids among which all events lie whose time matches the filter.
pub(super) async fn span_of_times(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &EventFilter,
    descending: bool,
) -> QueryResult<Span> {
    let mut span = Span::all(scope.namespace, descending);
    if let Some(since) = filter.since.and_then(|since| since.checked_sub_signed(MARGIN)) {
        span.above = sample(conn, scope, "created_at <", since, "DESC").await?.unwrap_or(span.above);
    }
    if let Some(until) = filter.until.and_then(|until| until.checked_add_signed(MARGIN)) {
        span.below = sample(conn, scope, "created_at >=", until, "ASC").await?.unwrap_or(span.below);
    }
    Ok(span)
}

/// Returns the id of the sample next to a time.
async fn sample(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    condition: &str,
    time: DateTime<Utc>,
    direction: &str,
) -> QueryResult<Option<i64>> {
    let statement = FilteredQuery::new(format!(
        "SELECT id FROM waybill.events WHERE namespace_id = {} AND id % 64 = 0",
        scope.namespace
    ));
    let order = format!("created_at {direction}, id {direction}");
    let rows: Vec<IdRow> = statement.and::<Timestamptz, _>(condition, time).load(conn, &order, 0, 1).await?;
    Ok(rows.first().map(|row| row.id))
}

#[derive(QueryableByName)]
struct TimeRow {
    #[diesel(sql_type = Timestamptz)]
    created_at: DateTime<Utc>,
}

/// Returns the time of the last event up to a position. The event at the position itself may have been
/// removed; if all before it were, everything up to now was searched.
pub(super) async fn time_at(conn: &mut AsyncPgConnection, span: &Span, position: i64) -> QueryResult<DateTime<Utc>> {
    let (up_to, direction) = if span.descending { ("id >=", "ASC") } else { ("id <=", "DESC") };
    let begin = format!("SELECT created_at FROM waybill.events WHERE namespace_id = {}", span.namespace);
    let statement = FilteredQuery::new(begin).and::<BigInt, _>(up_to, position);
    let rows: Vec<TimeRow> = statement.load(conn, &format!("id {direction}"), 0, 1).await?;
    Ok(rows.first().map_or_else(Utc::now, |row| row.created_at))
}
