//! The indexes in which events are found, each in the order of ids.
//!
//! A source returns the ids of all events that match one field of a filter, and at a cost that depends on
//! the number of ids only. It may return ids that do not match (`holds` is false, or the look-up of the
//! row tells), but never misses one.
//!
//! Every part of a source is one index, read as a range of `(column, id)` and ordered by both columns:
//! with `column = value` and an order by id, the planner might walk all ids in search of these rows.

use diesel::sql_types::{Array, BigInt, Nullable, Text, Timestamptz};

use crate::domain::status::Status;
use crate::store::lists::events::EventFilter;
use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::spans::Span;

/// A source of event ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    CorrelationId(String),
    OrderingKey(String),
    /// The list of leases: what is held, and what was settled in the last seconds.
    Held,
    /// Failed and cancelled events, by `listed_status`.
    Listed(Status),
    /// What can be claimed, what waits for its time or its turn, and roll-ups with open pushes.
    Pending,
    EventType(String),
    Tags(Vec<String>),
    /// The log has the completions of pull events, also of removed ones; `listed_status` has those of other events.
    Completed,
    /// All events, of the time that the filter has.
    All,
}

/// An index by `(namespace_id, column, id)`.
struct Index {
    table: &'static str,
    column: &'static str,
    id: &'static str,
    /// The type of the column, to which a text is cast.
    column_type: &'static str,
    /// The rows of a partial index, as its definition has them.
    predicate: &'static str,
}

const BY_CORRELATION: Index = of_events("correlation_id", "correlation_id IS NOT NULL");
const BY_ORDERING_KEY: Index = of_events("ordering_key", "ordering_key IS NOT NULL");
const BY_TYPE: Index = of_events("event_type", "event_type IS NOT NULL");
const BY_FIRST_TAG: Index = of_events("(split_part(tags, ',', 1) COLLATE \"C\")", "tags <> ''");
const BY_OTHER_TAG: Index =
    Index { table: "waybill.event_tags", column: "tag", id: "event_id", column_type: "text", predicate: "true" };
const BY_LISTED_STATUS: Index = Index {
    table: "waybill.deliveries",
    column: "listed_status",
    id: "id",
    column_type: "waybill.status",
    predicate: "listed_status IS NOT NULL AND subscription_id IS NULL",
};

const fn of_events(column: &'static str, predicate: &'static str) -> Index {
    Index { table: "waybill.events", column, id: "id", column_type: "text", predicate }
}

impl Source {
    /// Returns the sources that a filter can be served from. Without a better one, that is all events.
    ///
    /// If neither is known to be shorter, an earlier one is preferred: few events share a correlation id
    /// or an ordering key, and most events are completed. The time bounds the ids of every source.
    pub(super) fn of(filter: &EventFilter) -> Vec<Self> {
        let status = filter.status.map(|status| match status {
            Status::Pending => Source::Pending,
            Status::Processing => Source::Held,
            Status::Completed => Source::Completed,
            Status::Failed | Status::Cancelled => Source::Listed(status),
        });
        let (rare_status, completed) = match status {
            Some(Source::Completed) => (None, Some(Source::Completed)),
            other => (other, None),
        };
        let sources = [
            filter.correlation_id.clone().map(Source::CorrelationId),
            filter.ordering_key.clone().map(Source::OrderingKey),
            (filter.since.is_some() || filter.until.is_some()).then_some(Source::All),
            rare_status,
            filter.event_type.clone().map(Source::EventType),
            Some(filter.tags.clone()).filter(|tags| !tags.is_empty()).map(Source::Tags),
            completed,
        ];
        let sources: Vec<Source> = sources.into_iter().flatten().collect();
        if sources.is_empty() { vec![Source::All] } else { sources }
    }

    /// Returns the part of a filter that the ids of this source may not match.
    pub(super) fn remaining(&self, filter: &EventFilter) -> EventFilter {
        let filter = filter.clone();
        match self {
            Source::CorrelationId(_) => EventFilter { correlation_id: None, ..filter },
            Source::OrderingKey(_) => EventFilter { ordering_key: None, ..filter },
            Source::EventType(_) => EventFilter { event_type: None, ..filter },
            Source::Tags(_) => EventFilter { tags: Vec::new(), ..filter },
            Source::Listed(_) | Source::Pending => EventFilter { status: None, ..filter },
            Source::All => EventFilter { since: None, until: None, ..filter },
            // A line of the log may be older than the state of an event that was made again from a dead letter.
            Source::Held | Source::Completed => filter,
        }
    }

    /// Appends a query of the first `limit` ids of a span. Each comes with `holds`: whether the index row
    /// matches, as far as the index row tells.
    pub(super) fn read<'q>(
        &self,
        query: FilteredQuery<'q>,
        filter: &EventFilter,
        span: &Span,
        limit: i64,
    ) -> FilteredQuery<'q> {
        let query = query.sql("SELECT id, bool_or(holds) AS holds FROM (");
        let text = |value: &String| vec![value.clone()];
        let status = |status: Status| vec![status.as_str().to_owned()];
        let query = match self {
            Source::CorrelationId(id) => by_index(query, &BY_CORRELATION, text(id), span, limit),
            Source::OrderingKey(key) => by_index(query, &BY_ORDERING_KEY, text(key), span, limit),
            Source::EventType(name) => by_index(query, &BY_TYPE, text(name), span, limit),
            Source::Tags(tags) => {
                let query = by_index(query, &BY_FIRST_TAG, tags.clone(), span, limit).sql(" UNION ALL ");
                by_index(query, &BY_OTHER_TAG, tags.clone(), span, limit)
            }
            Source::Listed(listed) => by_index(query, &BY_LISTED_STATUS, status(*listed), span, limit),
            Source::Pending => {
                let query = ready(query, span, limit).sql(" UNION ALL ");
                let query = waiting(query, span, limit).sql(" UNION ALL ");
                by_index(query, &BY_LISTED_STATUS, status(Status::Pending), span, limit)
            }
            Source::Completed => {
                let query = completions(query, span, limit).sql(" UNION ALL ");
                by_index(query, &BY_LISTED_STATUS, status(Status::Completed), span, limit)
            }
            Source::Held => held(query, span, limit),
            Source::All => all(query, filter, span, limit),
        };
        query.sql(&format!(") parts GROUP BY id ORDER BY id {} LIMIT {limit}", span.direction()))
    }
}

/// Appends the ids with one of `values` in an index.
fn by_index<'q>(
    query: FilteredQuery<'q>,
    index: &Index,
    values: Vec<String>,
    span: &Span,
    limit: i64,
) -> FilteredQuery<'q> {
    let Index { table, column, id, column_type, predicate } = index;
    let (Span { namespace, above, below, .. }, direction) = (*span, span.direction());
    query
        .sql("(SELECT i.id, true AS holds FROM unnest(")
        .bind::<Array<Text>, _>(values)
        .sql(&format!(
            ") AS v(value) CROSS JOIN LATERAL (SELECT {id} AS id FROM {table} \
             WHERE namespace_id = {namespace} AND {predicate} AND ({column}, {id}) > (v.value::{column_type}, "
        ))
        .bind::<BigInt, _>(above)
        .sql(&format!(") AND ({column}, {id}) < (v.value::{column_type}, "))
        .bind::<BigInt, _>(below)
        .sql(&format!(") ORDER BY {column} {direction}, {id} {direction} LIMIT {limit}) i)"))
}

/// Appends the events that can be claimed. An event has an entry per tag; the window function drops
/// repeated ids as they are read, where `DISTINCT` might read all of them first.
fn ready<'q>(query: FilteredQuery<'q>, span: &Span, limit: i64) -> FilteredQuery<'q> {
    let (namespace, direction) = (span.namespace, span.direction());
    let query = query.sql(&format!(
        "(SELECT id, true AS holds FROM (\
             SELECT delivery_id AS id, lag(delivery_id) OVER (ORDER BY delivery_id {direction}) AS previous \
             FROM waybill.ready WHERE namespace_id = {namespace} AND queue >= 't:'"
    ));
    span.limit(query, "delivery_id").sql(&format!(") entries WHERE previous IS DISTINCT FROM id LIMIT {limit})"))
}

/// Appends the events that wait for their time or their turn. The index has held events with an ordering key, too,
/// at most one for each key. They are skipped here, all of them, and each costs a look at its row.
fn waiting<'q>(query: FilteredQuery<'q>, span: &Span, limit: i64) -> FilteredQuery<'q> {
    let (namespace, direction) = (span.namespace, span.direction());
    let query = query.sql(&format!(
        "(SELECT id, true AS holds FROM waybill.deliveries WHERE namespace_id = {namespace} AND status = 'PENDING' \
         AND subscription_id IS NULL AND (due_at IS NOT NULL OR order_seq IS NOT NULL)"
    ));
    span.limit(query, "id").sql(&format!(" ORDER BY id {direction} LIMIT {limit})"))
}

/// The number of ids of events that are read for each id of the log, and for all of a step. They must fit into the
/// memory of a hash table.
const EVENTS_PER_COMPLETION: i64 = 8;
const EVENTS_PER_STEP: i64 = 16_384;

/// Appends the completed events of the log. Log lines outlive events, and what is left of the events may lie anywhere
/// among those that were removed. So the ids begin at the first event that still exists and end at the last one, and
/// those in between are compared with the ids of events, which are read as a range: `holds` is false if there is no such
/// event. Events beyond the range, if there are too many, are left to the look-up.
fn completions<'q>(query: FilteredQuery<'q>, span: &Span, limit: i64) -> FilteredQuery<'q> {
    let (namespace, direction) = (span.namespace, span.direction());
    let mut query = query.sql(&format!(
        "(WITH logged AS MATERIALIZED (SELECT event_id AS id FROM waybill.event_log \
         WHERE namespace_id = {namespace} AND delivery_id IS NULL AND action = 'COMPLETED'"
    ));
    for (bound, order) in [(">=", "ASC"), ("<=", "DESC")] {
        let event = format!(" AND event_id {bound} (SELECT id FROM waybill.events WHERE namespace_id = {namespace}");
        query = span.limit(query.sql(&event), "id").sql(&format!(" ORDER BY id {order} LIMIT 1)"));
    }
    let query = span.limit(query, "event_id");
    let (most, last) = ((limit * EVENTS_PER_COMPLETION).min(EVENTS_PER_STEP), span.last());
    let (beyond, nothing) = if span.descending { ("<", 0) } else { (">", i64::MAX) };
    query.sql(&format!(
        " ORDER BY event_id {direction} LIMIT {limit}), existing AS MATERIALIZED (SELECT id FROM waybill.events \
         WHERE namespace_id = {namespace} AND id >= (SELECT min(id) FROM logged) AND id <= (SELECT max(id) FROM logged) \
         ORDER BY id {direction} LIMIT {most}) \
         SELECT id, id IN (SELECT id FROM existing) OR id {beyond} \
             (SELECT CASE WHEN count(*) < {most} THEN {nothing} ELSE {last}(id) END FROM existing) AS holds FROM logged)"
    ))
}

/// Appends the ids of the list of leases. The list has no order by id, so all leases of the namespace are read.
fn held<'q>(query: FilteredQuery<'q>, span: &Span, limit: i64) -> FilteredQuery<'q> {
    let (namespace, direction) = (span.namespace, span.direction());
    let query = query.sql(&format!(
        "(SELECT DISTINCT watched.id, true AS holds FROM waybill.lease_watch w, unnest(w.delivery_ids) AS watched(id) \
         WHERE w.namespace_id = {namespace}"
    ));
    span.limit(query, "watched.id").sql(&format!(" ORDER BY watched.id {direction} LIMIT {limit})"))
}

/// Appends all events. The time is checked here: the events of a time lie together on disk.
fn all<'q>(query: FilteredQuery<'q>, filter: &EventFilter, span: &Span, limit: i64) -> FilteredQuery<'q> {
    let (namespace, direction) = (span.namespace, span.direction());
    let query = match (filter.since, filter.until) {
        (None, None) => query.sql("(SELECT id, true AS holds"),
        (since, until) => query
            .sql("(SELECT id, created_at >= coalesce(")
            .bind::<Nullable<Timestamptz>, _>(since)
            .sql(", '-infinity') AND created_at < coalesce(")
            .bind::<Nullable<Timestamptz>, _>(until)
            .sql(", 'infinity') AS holds"),
    };
    let query = query.sql(&format!(" FROM waybill.events WHERE namespace_id = {namespace}"));
    span.limit(query, "id").sql(&format!(" ORDER BY id {direction} LIMIT {limit})"))
}
