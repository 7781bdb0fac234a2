//! Searches events along one source, in bounded steps.
//!
//! A step takes the next ids of its source, looks up the rows of each, and checks the whole filter, all in
//! one statement and so in one snapshot: an event that moves from one part of a source to another is
//! found in one of them. Steps and pages cover ranges of ids that follow each other, so what does not
//! change meanwhile is neither repeated nor skipped.
//!
//! The look-ups have `OFFSET 0`, which keeps the planner from reversing the join, whatever its statistics
//! say. In a reversed join nothing would bound the search.

use std::cmp::Reverse;

use diesel::QueryResult;
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Nullable};
use diesel_async::AsyncPgConnection;

use crate::domain::ids::EventId;
use crate::domain::limits;
use crate::store::lists::event_conditions::{Tables, event_conditions};
use crate::store::lists::event_sources::Source;
use crate::store::lists::events::{EventFilter, listed_columns};
use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::spans::{Examined, Span};
use crate::store::tables::event_columns::EventRow;

const TABLES: Tables = Tables { event: "e", work: "d" };

/// A search for the events that match a filter.
#[derive(Debug)]
pub(super) struct EventSearch<'a> {
    pub filter: &'a EventFilter,
    pub source: Source,
}

/// The number of matches up to which a total is counted if each costs a look-up. A thousand of them would cost 20 times as
/// much as the page.
const LOOKED_UP_COUNT: i64 = 100;

/// How selective a source is. Greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Selectivity {
    Reaches(i64),
    Ends(Reverse<i64>),
}

/// The number of matches in a step.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(super) struct Matches {
    #[diesel(embed)]
    pub examined: Examined,
    #[diesel(sql_type = BigInt)]
    pub matched: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub last_match: Option<i64>,
}

/// A row of a step: an event, or none if no event of the step matches.
struct ReadRow {
    examined: Examined,
    event: Option<EventRow>,
}

impl QueryableByName<Pg> for ReadRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let id: Option<EventId> = NamedRow::get::<Nullable<BigInt>, _>(row, "id")?;
        let event = id.map(|_| EventRow::build(row)).transpose()?;
        Ok(ReadRow { examined: Examined::build(row)?, event })
    }
}

impl EventSearch<'_> {
    /// Returns whether ids that do not match cost little: the source itself tells most of them, or they are those of the
    /// last seconds.
    pub(super) fn is_cheap(&self) -> bool {
        let remaining = self.source.remaining(self.filter);
        match self.source {
            Source::All => remaining == EventFilter::default(),
            Source::Completed => EventFilter { status: None, ..remaining } == EventFilter::default(),
            Source::Held => true,
            _ => false,
        }
    }

    /// Returns the number of matches up to which a total is counted. The log outlives events, and the list of leases has
    /// what was settled, so the row of each id must be looked up.
    pub(super) fn count_cap(&self) -> i64 {
        match self.source {
            Source::Held | Source::Completed => LOOKED_UP_COUNT,
            _ => limits::LIST_COUNT,
        }
    }

    /// Returns how selective the source is in a span, judged by its first `limit` ids. A source that has fewer
    /// is better the fewer of them hold. One that has more is better the farther its ids lie apart.
    pub(super) async fn selectivity(
        &self,
        conn: &mut AsyncPgConnection,
        span: &Span,
        limit: i64,
    ) -> QueryResult<Selectivity> {
        let holding = "(SELECT count(*) FROM found WHERE holds) AS matched, NULL::bigint AS last_match";
        let statement = self.found(span, limit).sql(&format!("SELECT ids, last_id, {holding} FROM examined"));
        let rows: Vec<Matches> = statement.load_all(conn).await?;
        let Matches { examined, matched, .. } = rows.into_iter().next().ok_or(diesel::result::Error::NotFound)?;
        let distance = examined.last_id.map_or(0, |last| if span.descending { -last } else { last });
        Ok(match examined.ids < limit {
            true => Selectivity::Ends(Reverse(matched)),
            false => Selectivity::Reaches(distance),
        })
    }

    /// Reads the next `ids` ids of the source and returns the first `limit` matching events.
    pub(super) async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        span: &Span,
        ids: i64,
        limit: i64,
    ) -> QueryResult<(Vec<EventRow>, Examined)> {
        let (lookups, direction) = (self.lookups(span, true, true), span.direction());
        let statement = self.found(span, ids).sql(&format!(
            "SELECT ids, last_id, events.* FROM examined LEFT JOIN (SELECT {} FROM {lookups}",
            listed_columns()
        ));
        let statement = event_conditions(statement, self.filter, TABLES)
            .sql(&format!(" ORDER BY c.id {direction} LIMIT {limit}) events ON true ORDER BY id {direction}"));
        let rows: Vec<ReadRow> = statement.load_all(conn).await?;
        let examined = rows.first().map(|row| row.examined).unwrap_or_default();
        Ok((rows.into_iter().filter_map(|row| row.event).collect(), examined))
    }

    /// Reads the next `ids` ids of the source and counts up to `limit` matching events. Rows are looked up
    /// only where the source leaves something open.
    pub(super) async fn count(
        &self,
        conn: &mut AsyncPgConnection,
        span: &Span,
        ids: i64,
        limit: i64,
    ) -> QueryResult<Matches> {
        let remaining = self.source.remaining(self.filter);
        let lookups = self.lookups(span, remaining.is_about_the_event(), remaining.is_about_the_work());
        let (direction, last) = (span.direction(), span.last());
        let statement = self.found(span, ids).sql(&format!(
            "SELECT ids, last_id, matched, last_match FROM examined CROSS JOIN \
             (SELECT count(*) AS matched, {last}(id) AS last_match FROM (SELECT c.id FROM {lookups}"
        ));
        let statement = event_conditions(statement, &remaining, TABLES);
        let statement = statement.sql(&format!(" ORDER BY c.id {direction} LIMIT {limit}) matching) matches"));
        let rows: Vec<Matches> = statement.load_all(conn).await?;
        rows.into_iter().next().ok_or(diesel::result::Error::NotFound)
    }

    /// Begins a statement with the next `ids` ids of the source.
    fn found<'q>(&self, span: &Span, ids: i64) -> FilteredQuery<'q> {
        let begin = FilteredQuery::new("WITH found AS MATERIALIZED (");
        self.source.read(begin, self.filter, span, ids).sql(&format!(
            "), examined AS MATERIALIZED (SELECT count(*) AS ids, {}(id) AS last_id FROM found) ",
            span.last()
        ))
    }

    /// Returns the ids that were found, with the rows that are needed. The row whose look-up can reject an
    /// id is looked up first.
    fn lookups(&self, span: &Span, event: bool, work: bool) -> String {
        let (namespace, direction) = (span.namespace, span.direction());
        let row = |table: &str, alias: &str, of: &str| {
            format!(
                " CROSS JOIN LATERAL (SELECT * FROM {table} \
                 WHERE namespace_id = {namespace} AND id = {of}.id OFFSET 0) {alias}"
            )
        };
        // Ids of pushes are found, too, among what is held.
        let own_work = "(SELECT * FROM waybill.deliveries WHERE subscription_id IS NULL) AS own";
        let joined = match (event, work) {
            _ if work && self.source.remaining(self.filter).is_about_the_work() => {
                row(own_work, "d", "c") + &if event { row("waybill.events", "e", "d") } else { String::new() }
            }
            (true, true) => row("waybill.events", "e", "c") + &row(own_work, "d", "e"),
            (true, false) => row("waybill.events", "e", "c"),
            (false, true) => row(own_work, "d", "c"),
            (false, false) => String::new(),
        };
        format!("(SELECT id FROM found WHERE holds ORDER BY id {direction} OFFSET 0) c{joined} WHERE true")
    }
}
