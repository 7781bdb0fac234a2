//! Finds the rows that an operation is about, in the order of ids and at a bounded cost.
//!
//! Each search reads at most `scan` rows along one index and returns those of them that match. If it
//! finds none it still has a position from which to go on, so a filter that matches few rows is followed
//! to the end of the table in bounded steps.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::store::lists::dead_letters::DeadLetterFilter;
use crate::store::lists::events::EventFilter;
use crate::store::lists::filtered_query::{FilteredQuery, IndexRange};
use crate::store::lists::pages::{IdRow, Page};
use crate::store::lists::pushes::PushFilter;
use crate::store::statement::statement;

/// The rows that an operation is about.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// Events with one of `statuses`.
    Events { filter: &'a EventFilter, statuses: &'a [Status] },
    /// Events that workers hold, and whose lease has expired or whose worker has given no sign of life for
    /// `silent_seconds`.
    HeldEvents { filter: &'a EventFilter, silent_seconds: Option<f64> },
    /// Pushes with one of `statuses`. Failed ones may be limited to those that block their ordering key.
    Pushes { filter: &'a PushFilter, statuses: &'a [Status], failed_must_block: bool },
    /// Dead letters that have not been replayed.
    DeadLetters { filter: &'a DeadLetterFilter },
}

/// The part of a table to search.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// The first row has a higher id.
    pub after: i64,
    /// The highest id to return.
    pub until: i64,
    /// The maximum number of rows to return.
    pub limit: i64,
    /// The maximum number of rows to read.
    pub scan: i64,
}

impl Walk {
    fn page(&self) -> Page {
        let Walk { after, limit, scan, .. } = *self;
        Page { descending: false, after: Some(after), limit, scan }
    }
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Candidates {
    /// In ascending order.
    pub ids: Vec<i64>,
    /// The position of the next search. `None` if there are no more rows.
    pub next: Option<i64>,
}

/// Returns the highest id of the table that an operation walks through, or 0 if it is empty.
pub(crate) async fn last_id(conn: &mut AsyncPgConnection, target: Target<'_>) -> QueryResult<i64> {
    let statement = match target {
        Target::DeadLetters { .. } => statement!("last_dead_letter_id"),
        Target::Events { .. } | Target::HeldEvents { .. } | Target::Pushes { .. } => statement!("last_delivery_id"),
    };
    let row: IdRow = statement.query().get_result(conn).await?;
    Ok(row.id)
}

/// Searches for the next rows that an operation is about.
pub async fn find_candidates(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    target: Target<'_>,
    walk: Walk,
) -> QueryResult<Candidates> {
    let unhappy = target.unhappy_statuses();
    if unhappy.is_empty() {
        return search(conn, scope, target, None, walk).await;
    }
    // The index holds the rows of each state in the order of ids, so each state is searched on its own.
    let mut found = Vec::new();
    for status in unhappy {
        found.push(search(conn, scope, target, Some(status), walk).await?);
    }
    Ok(merge(found, walk.limit))
}

/// Merges searches of the same part of a table. Beyond the position where the first of them ended, nothing
/// is known, so later rows are left to the next search.
fn merge(found: Vec<Candidates>, limit: i64) -> Candidates {
    let end = found.iter().filter_map(|candidates| candidates.next).min();
    let mut ids: Vec<i64> = found.into_iter().flat_map(|candidates| candidates.ids).collect();
    ids.retain(|id| end.is_none_or(|end| *id <= end));
    ids.sort_unstable();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_cut = ids.len() > limit;
    ids.truncate(limit);
    let next = if is_cut { ids.last().copied() } else { end };
    Candidates { ids, next }
}

#[derive(QueryableByName)]
struct Read {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    fits: bool,
    /// Whether it is the last row that was read, and there may be more.
    #[diesel(sql_type = Bool)]
    is_end: bool,
}

/// Reads rows along one index. The inner query reads up to `scan` rows; the outer one stops it as soon as
/// `limit` of them match, since all parts have the order of the index. The row at which the scan ends is
/// returned even if it does not match.
async fn search(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    target: Target<'_>,
    unhappy: Option<Status>,
    walk: Walk,
) -> QueryResult<Candidates> {
    let begin = FilteredQuery::new("SELECT id, fits, n = ")
        .bind::<BigInt, _>(walk.scan)
        .sql(" AS is_end FROM (SELECT r.id, r.range_key, row_number() OVER (ORDER BY r.range_key, r.id) AS n, (true");
    let conditions = target.conditions(begin, scope);
    let rows = target.rows(conditions.sql(") IS TRUE AS fits FROM ("), unhappy, walk);
    let statement = rows.sql(" LIMIT ").bind::<BigInt, _>(walk.scan).sql(") r) r WHERE (fits OR n = ");
    let statement = statement.bind::<BigInt, _>(walk.scan).sql(")");
    let read: Vec<Read> = statement.load(conn, "range_key, id", 0, walk.limit).await?;
    let is_full = read.len() as i64 == walk.limit;
    let end = read.last().filter(|row| is_full || row.is_end).map(|row| row.id);
    let ids = read.into_iter().filter(|row| row.fits).map(|row| row.id).collect();
    Ok(Candidates { ids, next: end.filter(|end| *end < walk.until) })
}

/// The columns of an event that conditions are about, joined to its id and the key of its index range.
const EVENT_COLUMNS: &str = "e.namespace_id, e.tags, e.event_type, e.correlation_id, e.created_at, \
     d.status, d.worker_id, d.subscription_id, d.lease_expires_at, d.updated_at";

const OWN_DELIVERY: &str = "(SELECT * FROM waybill.deliveries WHERE id = e.id OFFSET 0) d";
const EVENT_OF_DELIVERY: &str = "(SELECT * FROM waybill.events WHERE id = d.event_id OFFSET 0) e";

const PUSH_COLUMNS: &str = "d.namespace_id, d.status, d.event_id, d.subscription_id, d.order_seq, e.created_at";
const DEAD_LETTER_COLUMNS: &str =
    "l.namespace_id, l.event_id, l.subscription_id, l.reason, l.created_at, l.replayed_at";

impl Target<'_> {
    /// Returns the states to search for in the index of failed and cancelled rows. Empty if another index is
    /// better, or if rows in other states are meant too.
    fn unhappy_statuses(&self) -> Vec<Status> {
        let (statuses, has_better_index) = match self {
            Target::Events { filter, statuses } => (*statuses, filter.correlation_id.is_some()),
            Target::Pushes { filter, statuses, .. } => {
                (*statuses, filter.event_id.is_some() || filter.subscription_id.is_some())
            }
            Target::HeldEvents { .. } | Target::DeadLetters { .. } => return Vec::new(),
        };
        let are_unhappy = statuses.iter().all(|status| matches!(status, Status::Failed | Status::Cancelled));
        if are_unhappy && !has_better_index { statuses.to_vec() } else { Vec::new() }
    }

    /// Appends the query of the rows to read, in the order of their index.
    fn rows<'a>(&self, query: FilteredQuery<'a>, unhappy: Option<Status>, walk: Walk) -> FilteredQuery<'a> {
        match self {
            Target::Events { filter, .. } => event_rows(query, filter, unhappy, walk),
            Target::HeldEvents { .. } => held_rows(query, walk),
            Target::Pushes { filter, .. } => push_rows(query, filter, unhappy, walk),
            Target::DeadLetters { filter } => dead_letter_rows(query, filter, walk),
        }
    }

    /// Appends the conditions that a row must fulfil.
    fn conditions<'a>(&self, query: FilteredQuery<'a>, scope: &Scope) -> FilteredQuery<'a> {
        let query = query.and::<Integer, _>("r.namespace_id =", scope.namespace);
        match self {
            Target::Events { filter, statuses } => {
                event_conditions(with_status(query, statuses), filter).sql(" AND r.subscription_id IS NULL")
            }
            Target::HeldEvents { filter, silent_seconds } => {
                let query = event_conditions(with_status(query, &[Status::Processing]), filter);
                stale(query.sql(" AND r.subscription_id IS NULL"), scope.now, *silent_seconds)
            }
            Target::Pushes { filter, statuses, failed_must_block } => {
                let query = with_status(query, statuses).sql(" AND r.subscription_id IS NOT NULL");
                let query = match failed_must_block {
                    true => query.sql(" AND (r.status <> 'FAILED' OR r.order_seq IS NOT NULL)"),
                    false => query,
                };
                let query = equal_to(query, "r.event_id =", filter.event_id.map(|id| id.0));
                let query = equal_to(query, "r.subscription_id =", filter.subscription_id.map(|id| id.0));
                created_within(query, filter.since, filter.until)
            }
            Target::DeadLetters { filter } => {
                let query = query.sql(" AND r.replayed_at IS NULL");
                let query = equal_to(query, "r.event_id =", filter.event_id.map(|id| id.0));
                let query = equal_to(query, "r.subscription_id =", filter.subscription_id.map(|id| id.0));
                let query = equal_to_text(query, "r.reason =", filter.reason.as_ref());
                created_within(query, filter.since, filter.until)
            }
        }
    }
}

fn event_rows<'a>(
    query: FilteredQuery<'a>,
    filter: &EventFilter,
    unhappy: Option<Status>,
    walk: Walk,
) -> FilteredQuery<'a> {
    let from_events = format!("waybill.events e CROSS JOIN LATERAL {OWN_DELIVERY}");
    let from_unhappy = format!(
        "(SELECT * FROM waybill.deliveries WHERE subscription_id IS NULL) d CROSS JOIN LATERAL {EVENT_OF_DELIVERY}"
    );
    match (&filter.correlation_id, unhappy) {
        (Some(correlation_id), _) => {
            let range = IndexRange { column: "e.correlation_id", id: "e.id" };
            let query = select(query, &range, EVENT_COLUMNS, &from_events, walk);
            along(query.and_range::<Text, _>(&range, correlation_id.clone(), &walk.page()), &range, walk)
        }
        (None, Some(status)) => {
            let range = IndexRange { column: "d.unhappy_status", id: "d.id" };
            let query = select(query, &range, EVENT_COLUMNS, &from_unhappy, walk);
            along(query.and_range::<Text, _>(&range, status.as_str(), &walk.page()), &range, walk)
        }
        (None, None) => by_id(query, "e.id", EVENT_COLUMNS, &from_events, walk),
    }
}

/// Appends the query of deliveries on the list of leases. The list is not ordered by id, but it is small: it
/// holds what is being worked on. Of its deliveries at most `scan` are looked up.
fn held_rows(query: FilteredQuery<'_>, walk: Walk) -> FilteredQuery<'_> {
    query
        .sql(&format!(
            "SELECT w.id, w.id AS range_key, {EVENT_COLUMNS} FROM (SELECT DISTINCT watched.id \
             FROM waybill.lease_watch, unnest(delivery_ids) AS watched(id) WHERE true"
        ))
        .and_page("watched.id", &walk.page())
        .and::<BigInt, _>("watched.id <=", walk.until)
        .sql(" ORDER BY watched.id LIMIT ")
        .bind::<BigInt, _>(walk.scan)
        .sql(&format!(
            ") w LEFT JOIN LATERAL (SELECT * FROM waybill.deliveries WHERE id = w.id OFFSET 0) d ON true \
             LEFT JOIN LATERAL {EVENT_OF_DELIVERY} ON true ORDER BY w.id"
        ))
}

fn push_rows<'a>(
    query: FilteredQuery<'a>,
    filter: &PushFilter,
    unhappy: Option<Status>,
    walk: Walk,
) -> FilteredQuery<'a> {
    let from = format!("waybill.deliveries d CROSS JOIN LATERAL {EVENT_OF_DELIVERY}");
    match (filter.event_id, filter.subscription_id, unhappy) {
        // `OFFSET 0` is a fence: without it the planner may walk all ids in search of these few.
        (Some(event_id), ..) => query
            .sql(&format!(
                "SELECT d.id, d.id AS range_key, {PUSH_COLUMNS} FROM (SELECT * FROM waybill.deliveries WHERE event_id = "
            ))
            .bind::<BigInt, _>(event_id)
            .sql(&format!(
                " AND subscription_id IS NOT NULL OFFSET 0) d CROSS JOIN LATERAL {EVENT_OF_DELIVERY} WHERE true"
            ))
            .and_page("d.id", &walk.page())
        .and::<BigInt, _>("d.id <=", walk.until)
            .sql(" ORDER BY d.id"),
        (None, Some(subscription_id), _) => {
            let range = IndexRange { column: "d.subscription_id", id: "d.id" };
            let query = select(query, &range, PUSH_COLUMNS, &from, walk);
            along(query.and_range::<BigInt, _>(&range, subscription_id, &walk.page()), &range, walk)
        }
        (None, None, Some(status)) => {
            let range = IndexRange { column: "d.unhappy_status", id: "d.id" };
            let query = select(query, &range, PUSH_COLUMNS, &from, walk).sql(" AND d.subscription_id IS NOT NULL");
            along(query.and_range::<Text, _>(&range, status.as_str(), &walk.page()), &range, walk)
        }
        (None, None, None) => by_id(query, "d.id", PUSH_COLUMNS, &from, walk),
    }
}

fn dead_letter_rows<'a>(query: FilteredQuery<'a>, filter: &DeadLetterFilter, walk: Walk) -> FilteredQuery<'a> {
    let (column, value) = match (filter.event_id, filter.subscription_id) {
        (Some(event_id), _) => ("l.event_id", event_id.0),
        (None, Some(subscription_id)) => ("l.subscription_id", subscription_id.0),
        (None, None) => return by_id(query, "l.id", DEAD_LETTER_COLUMNS, "waybill.dead_letters l", walk),
    };
    let range = IndexRange { column, id: "l.id" };
    let query = select(query, &range, DEAD_LETTER_COLUMNS, "waybill.dead_letters l", walk);
    along(query.and_range::<BigInt, _>(&range, value, &walk.page()), &range, walk)
}

fn select<'a>(
    query: FilteredQuery<'a>,
    range: &IndexRange,
    columns: &str,
    from: &str,
    walk: Walk,
) -> FilteredQuery<'a> {
    let IndexRange { column, id } = range;
    query
        .sql(&format!("SELECT {id}, {column} AS range_key, {columns} FROM {from} WHERE true"))
        .and::<BigInt, _>(&format!("{id} <="), walk.until)
}

/// Appends the order of an index range.
fn along<'a>(query: FilteredQuery<'a>, range: &IndexRange, walk: Walk) -> FilteredQuery<'a> {
    query.sql(&format!(" ORDER BY {}", range.order(&walk.page())))
}

fn by_id<'a>(query: FilteredQuery<'a>, id: &str, columns: &str, from: &str, walk: Walk) -> FilteredQuery<'a> {
    query
        .sql(&format!("SELECT {id}, {id} AS range_key, {columns} FROM {from} WHERE true"))
        .and_page(id, &walk.page())
        .and::<BigInt, _>(&format!("{id} <="), walk.until)
        .sql(&format!(" ORDER BY {id}"))
}

fn event_conditions<'a>(query: FilteredQuery<'a>, filter: &EventFilter) -> FilteredQuery<'a> {
    let query = match filter.tags.is_empty() {
        true => query,
        false => query.and::<Array<Text>, _>("r.tags &&", filter.tags.clone()),
    };
    let query = equal_to_text(query, "r.event_type =", filter.event_type.as_ref());
    let query = equal_to_text(query, "r.worker_id =", filter.worker_id.as_ref());
    let query = equal_to_text(query, "r.correlation_id =", filter.correlation_id.as_ref());
    created_within(query, filter.since, filter.until)
}

fn with_status<'a>(query: FilteredQuery<'a>, statuses: &[Status]) -> FilteredQuery<'a> {
    let names: Vec<&'static str> = statuses.iter().map(|status| status.as_str()).collect();
    query.sql(" AND r.status = ANY(").bind::<Array<Text>, _>(names).sql(")")
}

fn stale(query: FilteredQuery<'_>, now: Option<DateTime<Utc>>, silent_seconds: Option<f64>) -> FilteredQuery<'_> {
    query
        .sql(" AND (r.lease_expires_at <= coalesce(")
        .bind::<Nullable<Timestamptz>, _>(now)
        .sql(", now()) OR r.updated_at <= coalesce(")
        .bind::<Nullable<Timestamptz>, _>(now)
        .sql(", now()) - make_interval(secs => ")
        .bind::<Nullable<Double>, _>(silent_seconds)
        .sql("))")
}

fn created_within(
    query: FilteredQuery<'_>,
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
) -> FilteredQuery<'_> {
    let query = match since {
        Some(since) => query.and::<Timestamptz, _>("r.created_at >=", since),
        None => query,
    };
    match until {
        Some(until) => query.and::<Timestamptz, _>("r.created_at <", until),
        None => query,
    }
}

fn equal_to<'a>(query: FilteredQuery<'a>, condition: &str, value: Option<i64>) -> FilteredQuery<'a> {
    match value {
        Some(value) => query.and::<BigInt, _>(condition, value),
        None => query,
    }
}

fn equal_to_text<'a>(query: FilteredQuery<'a>, condition: &str, value: Option<&String>) -> FilteredQuery<'a> {
    match value {
        Some(value) => query.and::<Text, _>(condition, value.clone()),
        None => query,
    }
}

#[cfg(test)]
mod tests {
    use super::{Candidates, merge};

    fn found(ids: &[i64], next: Option<i64>) -> Candidates {
        Candidates { ids: ids.to_vec(), next }
    }

    #[test]
    fn merged_searches_end_where_the_first_of_them_ended() {
        let merged = merge(vec![found(&[1, 4, 9], Some(9)), found(&[2, 12], None)], 10);
        assert_eq!((merged.ids, merged.next), (vec![1, 2, 4, 9], Some(9)));
        let merged = merge(vec![found(&[1, 4], None), found(&[2], None)], 10);
        assert_eq!((merged.ids, merged.next), (vec![1, 2, 4], None));
    }

    #[test]
    fn merged_searches_return_no_more_than_the_limit() {
        let merged = merge(vec![found(&[1, 4], Some(4)), found(&[2, 3], Some(3))], 2);
        assert_eq!((merged.ids, merged.next), (vec![1, 2], Some(2)));
    }
}
