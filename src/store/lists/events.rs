//! Lists of events with a bounded cost.
//!
//! Pages are ordered by id. A filter without an index is applied to a bounded number of rows (the
//! *scan*), and the result then has a cursor even if it is shorter than a page. `total` is counted the
//! same way, and `total_is_exact` says whether it is exact.
//!
//! The bound would not hold if the planner could begin a join at the other table. The statement
//! therefore fixes the order of the join: see `Listing`.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use diesel_async::AsyncPgConnection;
use serde::{Deserialize, Serialize};

use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::store::lists::filtered_query::{FilteredQuery, IndexRange};
use crate::store::lists::pages::{IdRow, Page, page_end};
use crate::store::tables::event_columns::{EventColumns, EventRow, WorkColumns};

/// A filter for events. Its fields are named as in the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
}

impl EventFilter {
    /// Returns whether rows must be read and discarded, since no index serves the filter.
    fn needs_scan(&self) -> bool {
        let status_needs_scan = match self.status {
            None | Some(Status::Failed | Status::Cancelled) => false,
            Some(Status::Pending | Status::Processing | Status::Completed) => true,
        };
        status_needs_scan
            || !self.tags.is_empty()
            || self.event_type.is_some()
            || self.worker_id.is_some()
            || self.since.is_some()
            || self.until.is_some()
    }
}

/// A page of events.
#[derive(Debug)]
pub struct EventPage {
    /// The events, without payload, progress and result.
    pub events: Vec<EventRow>,
    /// The position behind which the next page begins, if there may be more events.
    pub end: Option<i64>,
    /// The number of matching events, counted within a bounded number of rows.
    pub total: i64,
    /// Whether `total` includes all matching events.
    pub total_is_exact: bool,
}

/// The columns that may be large. Lists do not read them.
const LARGE: [&str; 3] = ["payload", "progress", "result"];

/// Returns the columns of an event and its state, with null for those that lists leave out.
fn rows() -> String {
    let column = |table: &str, name: &str| match LARGE.contains(&name) {
        true => format!("NULL::json AS {name}"),
        false => format!("{table}.{name}"),
    };
    let event = EventColumns::NAMES.iter().map(|name| column("e", name));
    event.chain(WorkColumns::NAMES.iter().map(|name| column("d", name))).collect::<Vec<_>>().join(", ")
}

const IDS: &str = "e.id";

/// Events in the order of ids, each with its own delivery looked up.
const FROM_EVENTS: &str = "waybill.events e CROSS JOIN LATERAL (SELECT * FROM waybill.deliveries WHERE namespace_id = e.namespace_id AND id = e.id OFFSET 0) d";
/// Deliveries by their `listed_status` (failed or cancelled), each with its event looked up. Pushes are
/// left out.
const FROM_UNHAPPY: &str = "(SELECT * FROM waybill.deliveries WHERE subscription_id IS NULL) d \
     CROSS JOIN LATERAL (SELECT * FROM waybill.events WHERE namespace_id = d.namespace_id AND id = d.id OFFSET 0) e";

/// Returns a page of events, after skipping `offset` of them.
pub async fn list_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &EventFilter,
    page: Page,
    offset: i64,
) -> QueryResult<EventPage> {
    let scan_end = scan_end(conn, scope, filter, page).await?;
    let events: Vec<EventRow> =
        Listing::filtered(&rows(), scope, filter, page, scan_end).load(conn, offset, page.limit).await?;
    let end = page_end(&events, page.limit, |row| row.event.id.0).or(scan_end);
    let (total, total_is_exact) = count(conn, scope, filter, page).await?;
    Ok(EventPage { events, end, total, total_is_exact })
}

/// Returns the events `ids` without their payloads, ordered by id.
pub(crate) async fn load_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: &[i64],
) -> QueryResult<Vec<EventRow>> {
    let statement = FilteredQuery::new(format!("SELECT {} FROM {FROM_EVENTS} WHERE true", rows()))
        .and::<Integer, _>("e.namespace_id =", scope.namespace)
        .sql(" AND e.id = ANY(")
        .bind::<Array<BigInt>, _>(ids)
        .sql(")");
    statement.load(conn, "e.id", 0, ids.len() as i64).await
}

/// Counts the matching events from the first page on and reads at most `scan` rows. Returns the count,
/// and whether it is exact.
async fn count(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &EventFilter,
    page: Page,
) -> QueryResult<(i64, bool)> {
    let whole = Page { after: None, ..page };
    let scan_end = scan_end(conn, scope, filter, whole).await?;
    let rows: Vec<IdRow> = Listing::filtered(IDS, scope, filter, whole, scan_end).load(conn, 0, page.scan + 1).await?;
    let counted = rows.len() as i64;
    Ok((counted.min(page.scan), scan_end.is_none() && counted <= page.scan))
}

/// Returns the last id that a bounded scan may read, or `None` if it may read to the end of the table.
async fn scan_end(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &EventFilter,
    page: Page,
) -> QueryResult<Option<i64>> {
    if !filter.needs_scan() {
        return Ok(None);
    }
    let rows: Vec<IdRow> = Listing::indexed(IDS, scope, filter, page).load(conn, page.scan - 1, 1).await?;
    Ok(rows.last().map(|row| row.id))
}

/// The statement of a list of events.
///
/// One table leads. Its rows are read in the order of ids, from the beginning of the page to the end of
/// the scan, and the row of the other table is looked up for each. `OFFSET 0` keeps the planner from
/// flattening the look-up, so it cannot reverse the join, whatever its statistics say. In a reversed
/// join nothing would bound the scan.
struct Listing<'a> {
    statement: FilteredQuery<'a>,
    /// The id column of the leading table.
    id: &'static str,
    order: String,
}

impl<'a> Listing<'a> {
    /// Returns the query with the conditions that an index serves: id, failed or cancelled, correlation.
    fn indexed(columns: &str, scope: &Scope, filter: &'a EventFilter, page: Page) -> Self {
        let unhappy = filter.status.filter(|status| matches!(status, Status::Failed | Status::Cancelled));
        // Fewer events share a correlation id than have failed, so that index is preferred.
        let (from, id, narrowed) = match (&filter.correlation_id, unhappy) {
            (Some(correlation_id), _) => (FROM_EVENTS, "e.id", Some(("e.correlation_id", "", correlation_id.as_str()))),
            (None, Some(status)) => {
                (FROM_UNHAPPY, "d.id", Some(("d.listed_status", "::waybill.status", status.as_str())))
            }
            (None, None) => (FROM_EVENTS, "e.id", None),
        };
        let statement = FilteredQuery::new(format!("SELECT {columns} FROM {from} WHERE true"))
            .and::<Integer, _>("e.namespace_id =", scope.namespace)
            .and::<Integer, _>("d.namespace_id =", scope.namespace);
        match narrowed {
            Some((column, cast, value)) => {
                let range = IndexRange { column, id, cast };
                Listing {
                    statement: statement.and_range::<Text, _>(&range, value, &page),
                    id,
                    order: range.order(&page),
                }
            }
            None => {
                Listing { statement: statement.and_page(id, &page), id, order: format!("{id} {}", page.direction()) }
            }
        }
    }

    /// Returns the query with all conditions, up to the end of the scan.
    fn filtered(columns: &str, scope: &Scope, filter: &'a EventFilter, page: Page, scan_end: Option<i64>) -> Self {
        let mut listing = Self::indexed(columns, scope, filter, page);
        listing.statement = listing
            .statement
            .and_given::<BigInt, _>(&format!("{} {}", listing.id, page.up_to()), scan_end)
            .and_given::<Text, _>("d.status::text =", filter.status.map(Status::as_str))
            .and_given::<Array<Text>, _>(
                "string_to_array(e.tags, ',') &&",
                Some(&filter.tags).filter(|tags| !tags.is_empty()),
            )
            .and_given::<Text, _>("e.event_type =", filter.event_type.as_deref())
            .and_given::<Text, _>("d.worker_id =", filter.worker_id.as_deref())
            .and_time_range("e.created_at", filter.since, filter.until);
        listing
    }

    async fn load<Row>(self, conn: &mut AsyncPgConnection, offset: i64, limit: i64) -> QueryResult<Vec<Row>>
    where
        Row: QueryableByName<Pg> + Send + 'static,
    {
        self.statement.load(conn, &self.order, offset, limit).await
    }
}
