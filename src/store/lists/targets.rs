//! The rows that operations are about: the index in which they are searched, and the conditions that they
//! must fulfil. `candidates.rs` searches for them.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::serialize::ToSql;
use diesel::sql_types::{Array, BigInt, Double, HasSqlType, Integer, Nullable, Text, Timestamptz};

use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::store::lists::candidates::Walk;
use crate::store::lists::dead_letters::DeadLetterFilter;
use crate::store::lists::event_conditions::{Tables, event_conditions};
use crate::store::lists::event_filter::EventFilter;
use crate::store::lists::filtered_query::{FilteredQuery, IndexRange};
use crate::store::lists::pushes::PushFilter;

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

/// The columns of an event that conditions are about, joined to its id and the key of its index range.
const EVENT_COLUMNS: &str = "e.namespace_id, e.tags, e.event_type, e.correlation_id, e.ordering_key, e.created_at, e.title, \
     e.labels, d.status, d.worker_id, d.last_error, d.subscription_id, d.lease_expires_at, d.updated_at";
const TABLES: Tables = Tables { event: "r", work: "r" };

const OWN_DELIVERY: &str =
    "(SELECT * FROM waybill.deliveries WHERE namespace_id = e.namespace_id AND id = e.id OFFSET 0) d";
const EVENT_OF_DELIVERY: &str =
    "(SELECT * FROM waybill.events WHERE namespace_id = d.namespace_id AND id = d.event_id OFFSET 0) e";

const PUSH_COLUMNS: &str =
    "d.namespace_id, d.status, d.event_id, d.subscription_id, d.order_seq, d.retry_count, e.created_at";
const DEAD_LETTER_COLUMNS: &str =
    "l.namespace_id, l.event_id, l.subscription_id, l.reason, l.created_at, l.replayed_at";

impl Target<'_> {
    /// Returns the states to search for in the index of failed and cancelled rows. Empty if another index is
    /// better, or if rows in other states are meant too.
    pub(super) fn listed_statuses(&self) -> Vec<Status> {
        let (statuses, has_better_index) = match self {
            Target::Events { filter, statuses } => {
                (*statuses, filter.correlation_id.is_some() || filter.ordering_key.is_some())
            }
            Target::Pushes { filter, statuses, .. } => {
                (*statuses, filter.event_id.is_some() || filter.subscription_id.is_some())
            }
            Target::HeldEvents { .. } | Target::DeadLetters { .. } => return Vec::new(),
        };
        let are_unhappy = statuses.iter().all(|status| matches!(status, Status::Failed | Status::Cancelled));
        if are_unhappy && !has_better_index { statuses.to_vec() } else { Vec::new() }
    }

    /// Returns the filter of events.
    pub(super) fn event_filter(&self) -> Option<&EventFilter> {
        match self {
            Target::Events { filter, .. } | Target::HeldEvents { filter, .. } => Some(filter),
            Target::Pushes { .. } | Target::DeadLetters { .. } => None,
        }
    }

    /// Appends the query of the rows to read, in the order of their index.
    pub(super) fn rows<'a>(
        &self,
        query: FilteredQuery<'a>,
        scope: &Scope,
        unhappy: Option<Status>,
        walk: Walk<'_>,
    ) -> FilteredQuery<'a> {
        if !walk.ids.is_empty() {
            return self.chosen_rows(query, scope, walk);
        }
        match self {
            Target::Events { filter, .. } => event_rows(query, scope, filter, unhappy, walk),
            Target::HeldEvents { .. } => held_rows(query, scope, walk),
            Target::Pushes { filter, .. } => push_rows(query, scope, filter, unhappy, walk),
            Target::DeadLetters { filter } => dead_letter_rows(query, scope, filter, walk),
        }
    }

    /// Appends the query of the rows with the ids of a walk. Each of them is looked up.
    fn chosen_rows<'a>(&self, query: FilteredQuery<'a>, scope: &Scope, walk: Walk<'_>) -> FilteredQuery<'a> {
        let namespace = scope.namespace;
        let row_of = |table: &str| {
            format!(
                "CROSS JOIN LATERAL (SELECT * FROM {table} WHERE namespace_id = {namespace} AND id = w.id OFFSET 0)"
            )
        };
        let (columns, tables) = match self {
            Target::Events { .. } | Target::HeldEvents { .. } => {
                (EVENT_COLUMNS, format!("{} e CROSS JOIN LATERAL {OWN_DELIVERY}", row_of("waybill.events")))
            }
            Target::Pushes { .. } => {
                (PUSH_COLUMNS, format!("{} d CROSS JOIN LATERAL {EVENT_OF_DELIVERY}", row_of("waybill.deliveries")))
            }
            Target::DeadLetters { .. } => (DEAD_LETTER_COLUMNS, format!("{} l", row_of("waybill.dead_letters"))),
        };
        query
            .sql(&format!("SELECT w.id, w.id AS range_key, {columns} FROM (SELECT chosen.id FROM unnest("))
            .bind::<Array<BigInt>, _>(walk.ids.to_vec())
            .sql(") AS chosen(id) WHERE true")
            .and_page("chosen.id", &walk.page())
            .and::<BigInt, _>("chosen.id <=", walk.until)
            .sql(&format!(") w {tables} ORDER BY w.id"))
    }

    /// Appends the conditions that a row must fulfil.
    pub(super) fn conditions<'a>(&self, query: FilteredQuery<'a>, scope: &Scope) -> FilteredQuery<'a> {
        let query = query.and::<Integer, _>("r.namespace_id =", scope.namespace);
        match self {
            Target::Events { filter, statuses } => {
                event_conditions(with_status(query, statuses), filter, TABLES).sql(" AND r.subscription_id IS NULL")
            }
            Target::HeldEvents { filter, silent_seconds } => {
                let query = event_conditions(with_status(query, &[Status::Processing]), filter, TABLES);
                stale(query.sql(" AND r.subscription_id IS NULL"), scope.now, *silent_seconds)
            }
            Target::Pushes { filter, statuses, failed_must_block } => {
                let query = with_status(query, statuses).sql(" AND r.subscription_id IS NOT NULL");
                let query = match failed_must_block {
                    true => query.sql(" AND (r.status <> 'FAILED' OR r.order_seq IS NOT NULL)"),
                    false => query,
                };
                query
                    .sql(&filter.failing_condition("r"))
                    .and_given::<BigInt, _>("r.event_id =", filter.event_id)
                    .and_given::<BigInt, _>("r.subscription_id =", filter.subscription_id)
                    .and_time_range("r.created_at", filter.since, filter.until)
            }
            Target::DeadLetters { filter } => query
                .sql(" AND r.replayed_at IS NULL")
                .and_given::<BigInt, _>("r.event_id =", filter.event_id)
                .and_given::<BigInt, _>("r.subscription_id =", filter.subscription_id)
                .and_given::<Text, _>("r.reason =", filter.reason.clone())
                .and_time_range("r.created_at", filter.since, filter.until),
        }
    }
}

fn event_rows<'a>(
    query: FilteredQuery<'a>,
    scope: &Scope,
    filter: &EventFilter,
    unhappy: Option<Status>,
    walk: Walk<'_>,
) -> FilteredQuery<'a> {
    let namespace = scope.namespace;
    let from_events = format!("waybill.events e CROSS JOIN LATERAL {OWN_DELIVERY} WHERE e.namespace_id = {namespace}");
    let from_unhappy = format!(
        "(SELECT * FROM waybill.deliveries WHERE subscription_id IS NULL) d CROSS JOIN LATERAL {EVENT_OF_DELIVERY} \
         WHERE d.namespace_id = {namespace}"
    );
    let (column, value) = match (&filter.correlation_id, &filter.ordering_key, unhappy, &filter.event_type) {
        (Some(correlation_id), ..) => ("e.correlation_id", correlation_id),
        (None, Some(ordering_key), ..) => ("e.ordering_key", ordering_key),
        (None, None, Some(status), _) => {
            let range = IndexRange { column: "d.listed_status", id: "d.id", cast: "::waybill.status" };
            return by_index::<Text, _>(query, &range, status.as_str(), EVENT_COLUMNS, &from_unhappy, walk);
        }
        (None, None, None, Some(event_type)) => ("e.event_type", event_type),
        (None, None, None, None) => return by_id(query, "e.id", EVENT_COLUMNS, &from_events, walk),
    };
    let range = IndexRange { column, id: "e.id", cast: "" };
    by_index::<Text, _>(query, &range, value.clone(), EVENT_COLUMNS, &from_events, walk)
}

/// Appends the query of deliveries on the list of leases. The list is not ordered by id, but it is small: it
/// holds what is being worked on. Of its deliveries at most `scan` are looked up.
fn held_rows<'a>(query: FilteredQuery<'a>, scope: &Scope, walk: Walk<'_>) -> FilteredQuery<'a> {
    let namespace = scope.namespace;
    query
        .sql(&format!(
            "SELECT w.id, w.id AS range_key, {EVENT_COLUMNS} FROM (SELECT DISTINCT watched.id \
             FROM waybill.lease_watch, unnest(delivery_ids) AS watched(id) WHERE namespace_id = {namespace}"
        ))
        .and_page("watched.id", &walk.page())
        .and::<BigInt, _>("watched.id <=", walk.until)
        .sql(" ORDER BY watched.id LIMIT ")
        .bind::<BigInt, _>(walk.scan)
        .sql(&format!(
            ") w LEFT JOIN LATERAL (SELECT * FROM waybill.deliveries WHERE namespace_id = {namespace} AND id = w.id OFFSET 0) d ON true \
             LEFT JOIN LATERAL {EVENT_OF_DELIVERY} ON true ORDER BY w.id"
        ))
}

fn push_rows<'a>(
    query: FilteredQuery<'a>,
    scope: &Scope,
    filter: &PushFilter,
    unhappy: Option<Status>,
    walk: Walk<'_>,
) -> FilteredQuery<'a> {
    let namespace = scope.namespace;
    let from =
        format!("waybill.deliveries d CROSS JOIN LATERAL {EVENT_OF_DELIVERY} WHERE d.namespace_id = {namespace}");
    match (filter.event_id, filter.subscription_id, unhappy) {
        // `OFFSET 0` is a fence: without it the planner may walk all ids in search of these few.
        (Some(event_id), ..) => {
            let begin = format!("SELECT d.id, d.id AS range_key, {PUSH_COLUMNS} FROM ");
            let of_event =
                format!("(SELECT * FROM waybill.deliveries WHERE namespace_id = {namespace} AND event_id = ");
            let end = format!(" AND subscription_id IS NOT NULL OFFSET 0) d CROSS JOIN LATERAL {EVENT_OF_DELIVERY}");
            let query = query.sql(&begin).sql(&of_event).bind::<BigInt, _>(event_id).sql(&end).sql(" WHERE true");
            query.and_page("d.id", &walk.page()).and::<BigInt, _>("d.id <=", walk.until).sql(" ORDER BY d.id")
        }
        (None, Some(subscription_id), _) => {
            let range = IndexRange { column: "d.subscription_id", id: "d.id", cast: "" };
            let from = format!("{from} AND d.subscription_id > 0");
            by_index::<BigInt, _>(query, &range, subscription_id, PUSH_COLUMNS, &from, walk)
        }
        (None, None, Some(status)) => {
            let range = IndexRange { column: "d.listed_status", id: "d.id", cast: "::waybill.status" };
            // The index has only pushes, and the planner uses it only if the query says so too.
            let from = format!("{from} AND d.subscription_id IS NOT NULL");
            by_index::<Text, _>(query, &range, status.as_str(), PUSH_COLUMNS, &from, walk)
        }
        (None, None, None) => by_id(query, "d.id", PUSH_COLUMNS, &from, walk),
    }
}

fn dead_letter_rows<'a>(
    query: FilteredQuery<'a>,
    scope: &Scope,
    filter: &DeadLetterFilter,
    walk: Walk<'_>,
) -> FilteredQuery<'a> {
    let from = format!("waybill.dead_letters l WHERE l.namespace_id = {}", scope.namespace);
    let (column, value) = match (filter.event_id, filter.subscription_id) {
        (Some(event_id), _) => ("l.event_id", event_id.0),
        (None, Some(subscription_id)) => ("l.subscription_id", subscription_id.0),
        (None, None) => return by_id(query, "l.id", DEAD_LETTER_COLUMNS, &from, walk),
    };
    let range = IndexRange { column, id: "l.id", cast: "" };
    by_index::<BigInt, _>(query, &range, value, DEAD_LETTER_COLUMNS, &from, walk)
}

/// Appends the query of the rows with one value of an indexed column, in the order of that index.
fn by_index<'a, T, V>(
    query: FilteredQuery<'a>,
    range: &IndexRange,
    value: V,
    columns: &str,
    from: &str,
    walk: Walk<'_>,
) -> FilteredQuery<'a>
where
    Pg: HasSqlType<T>,
    T: Send + 'a,
    V: ToSql<T, Pg> + Clone + Send + 'a,
{
    let IndexRange { column, id, .. } = range;
    let page = walk.page();
    query
        .sql(&format!("SELECT {id}, {column} AS range_key, {columns} FROM {from}"))
        .and::<BigInt, _>(&format!("{id} <="), walk.until)
        .and_range::<T, _>(range, value, &page)
        .sql(&format!(" ORDER BY {}", range.order(&page)))
}

fn by_id<'a>(query: FilteredQuery<'a>, id: &str, columns: &str, from: &str, walk: Walk<'_>) -> FilteredQuery<'a> {
    query
        .sql(&format!("SELECT {id}, {id} AS range_key, {columns} FROM {from}"))
        .and_page(id, &walk.page())
        .and::<BigInt, _>(&format!("{id} <="), walk.until)
        .sql(&format!(" ORDER BY {id}"))
}

fn with_status<'a>(query: FilteredQuery<'a>, statuses: &[Status]) -> FilteredQuery<'a> {
    let names: Vec<&'static str> = statuses.iter().map(|status| status.as_str()).collect();
    query.sql(" AND r.status = ANY(").bind::<Array<Text>, _>(names).sql("::waybill.status[])")
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
