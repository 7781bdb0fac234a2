//! Reads pushes for operators: lists with a bounded cost, and a single push.
//!
//! Pages are ordered by id. A filter without an index is applied to a bounded number of rows (the
//! *scan*), and the result then has a cursor even if it is shorter than a page.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::{Deserialize, Serialize};

use crate::domain::ids::{DeliveryId, EventId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::store::connection::cached::CachedExt;
use crate::store::lists::filtered_query::{FilteredQuery, IndexRange};
use crate::store::lists::pages::{IdRow, Page, page_end};
use crate::store::statement::statement;
use crate::store::tables::columns::StatusColumn;

/// The current state of a push. The migrations describe the columns.
#[derive(Debug, Clone, QueryableByName)]
pub struct PushRow {
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
    #[diesel(sql_type = BigInt)]
    pub event_id: EventId,
    #[diesel(sql_type = BigInt)]
    pub subscription_id: SubscriptionId,
    #[diesel(sql_type = Text)]
    pub status: StatusColumn,
    #[diesel(sql_type = Integer)]
    pub retry_count: i32,
    #[diesel(sql_type = Integer)]
    pub max_retries: i32,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub due_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub lease_expires_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Bool)]
    pub cancel_requested: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub cancel_reason: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub ordering_key: Option<String>,
    /// Whether the ordering key is a value of the payload, and not the event's own key.
    #[diesel(sql_type = Bool)]
    pub has_payload_key: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub last_error: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub replay_of: Option<i64>,
    /// The time at which the event was published.
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    pub updated_at: DateTime<Utc>,
}

/// A filter for pushes. Its fields are named as in the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<SubscriptionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// Only what is failing, or only what is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<bool>,
}

impl PushFilter {
    /// Returns the condition of `failing` on the columns of a table: attempts have failed, and it was given up or is
    /// tried again.
    pub(super) fn failing_condition(&self, table: &str) -> String {
        let is_failing = format!(
            "({table}.status = 'FAILED' OR {table}.status IN ('PENDING', 'PROCESSING') AND {table}.retry_count > 0)"
        );
        match self.failing {
            Some(true) => format!(" AND {is_failing}"),
            Some(false) => format!(" AND NOT {is_failing}"),
            None => String::new(),
        }
    }

    /// Returns the index that serves the filter.
    fn index(&self) -> Index {
        match (self.event_id, self.subscription_id, self.status) {
            (Some(event_id), ..) => Index::OfEvent(event_id),
            (None, Some(subscription_id), _) => Index::OfSubscription(subscription_id),
            (None, None, Some(status @ (Status::Failed | Status::Cancelled))) => Index::Unhappy(status),
            (None, None, _) => Index::ById,
        }
    }

    /// Returns whether rows must be read and discarded. An event has at most one push per subscription,
    /// so the pushes of an event are always all read.
    fn needs_scan(&self) -> bool {
        match self.index() {
            Index::OfEvent(_) => false,
            Index::Unhappy(_) => self.since.is_some() || self.until.is_some() || self.failing.is_some(),
            Index::OfSubscription(_) => {
                self.status.is_some() || self.since.is_some() || self.until.is_some() || self.failing.is_some()
            }
            Index::ById => true,
        }
    }
}

/// The index in which pushes are searched.
#[derive(Clone, Copy)]
enum Index {
    OfEvent(EventId),
    OfSubscription(SubscriptionId),
    Unhappy(Status),
    /// The index of all deliveries, including those that are not pushes.
    ById,
}

const OF_SUBSCRIPTION: IndexRange = IndexRange { column: "d.subscription_id", id: "d.id", cast: "" };
const UNHAPPY: IndexRange = IndexRange { column: "d.listed_status", id: "d.id", cast: "::waybill.status" };

impl Index {
    /// Returns the `ORDER BY` expression for the order of ids that follows the index.
    fn order(self, page: &Page) -> String {
        match self {
            Index::OfEvent(_) | Index::ById => format!("d.id {}", page.direction()),
            Index::OfSubscription(_) => OF_SUBSCRIPTION.order(page),
            Index::Unhappy(_) => UNHAPPY.order(page),
        }
    }
}

const COLUMNS: &str = "d.id, d.event_id, d.subscription_id, d.status, d.retry_count, d.max_retries, d.due_at, d.lease_expires_at, \
     d.cancel_requested, d.cancel_reason, d.ordering_key, d.last_error, d.replay_of, d.updated_at, e.created_at, \
     d.ordering_key IS DISTINCT FROM e.ordering_key AS has_payload_key";

/// Looks up the event of each push. `OFFSET 0` keeps the planner from beginning the join at the events.
const JOIN_EVENT: &str = " CROSS JOIN LATERAL (SELECT created_at, ordering_key FROM waybill.events WHERE namespace_id = d.namespace_id AND id = d.event_id OFFSET 0) e WHERE true";

/// Returns a page of pushes, and the position of the next page if there may be more.
pub async fn list_pushes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &PushFilter,
    page: Page,
) -> QueryResult<(Vec<PushRow>, Option<i64>)> {
    let scan_end = scan_end(conn, scope, filter, page).await?;
    let statement = filtered(scope, filter, page, scan_end);
    let rows: Vec<PushRow> = statement.load(conn, &filter.index().order(&page), 0, page.limit).await?;
    let next = page_end(&rows, page.limit, |row| row.id.0).or(scan_end);
    Ok((rows, next))
}

/// Returns the first `limit` pushes of an event.
pub async fn pushes_of_event(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_id: EventId,
    limit: i64,
) -> QueryResult<Vec<PushRow>> {
    let filter = PushFilter { event_id: Some(event_id), ..PushFilter::default() };
    let page = Page { descending: false, after: None, limit, scan: limit };
    Ok(list_pushes(conn, scope, &filter, page).await?.0)
}

/// Returns the last id that a bounded scan may read, or `None` if it may read to the end of the table.
async fn scan_end(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &PushFilter,
    page: Page,
) -> QueryResult<Option<i64>> {
    if !filter.needs_scan() {
        return Ok(None);
    }
    let statement = indexed("d.id", " WHERE true", scope, filter, page);
    let rows: Vec<IdRow> = statement.load(conn, &filter.index().order(&page), page.scan - 1, 1).await?;
    Ok(rows.last().map(|row| row.id))
}

/// Returns the query with the conditions that an index serves.
fn indexed<'a>(columns: &str, join: &str, scope: &Scope, filter: &PushFilter, page: Page) -> FilteredQuery<'a> {
    let select = format!("SELECT {columns} FROM ");
    let statement = match filter.index() {
        // `OFFSET 0` is a fence: without it the planner may walk all ids in search of these few.
        Index::OfEvent(event_id) => {
            FilteredQuery::new(format!("{select}(SELECT * FROM waybill.deliveries WHERE namespace_id = "))
                .bind::<Integer, _>(scope.namespace)
                .sql(" AND event_id = ")
                .bind::<BigInt, _>(event_id)
                .sql(" AND subscription_id IS NOT NULL OFFSET 0) d")
        }
        _ => FilteredQuery::new(format!("{select}waybill.deliveries d")),
    };
    let statement = statement.sql(join).and::<Integer, _>("d.namespace_id =", scope.namespace);
    match filter.index() {
        // The condition of the index, without which the planner does not use it.
        Index::OfSubscription(id) => {
            statement.sql(" AND d.subscription_id > 0").and_range::<BigInt, _>(&OF_SUBSCRIPTION, id, &page)
        }
        // The index has only pushes, and the planner uses it only if the query says so too.
        Index::Unhappy(status) => {
            let statement = statement.sql(" AND d.subscription_id IS NOT NULL");
            statement.and_range::<Text, _>(&UNHAPPY, status.as_str(), &page)
        }
        Index::OfEvent(_) | Index::ById => statement.and_page("d.id", &page),
    }
}

/// Returns the query with all conditions, up to the end of the scan.
fn filtered<'a>(scope: &Scope, filter: &PushFilter, page: Page, scan_end: Option<i64>) -> FilteredQuery<'a> {
    // Without an event, the index already has the subscription.
    let subscription_id = filter.subscription_id.filter(|_| filter.event_id.is_some());
    indexed(COLUMNS, JOIN_EVENT, scope, filter, page)
        .sql(" AND d.subscription_id IS NOT NULL")
        .and_given::<BigInt, _>(&format!("d.id {}", page.up_to()), scan_end)
        .and_given::<BigInt, _>("d.subscription_id =", subscription_id)
        .and_given::<Text, _>("d.status::text =", filter.status.map(Status::as_str))
        .sql(&filter.failing_condition("d"))
        .and_time_range("e.created_at", filter.since, filter.until)
}

/// Returns pushes, ordered by id. The event's own delivery is not a push.
pub async fn find_pushes(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[i64]) -> QueryResult<Vec<PushRow>> {
    statement!("find_pushes")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<BigInt>, _>(ids)
        .cached()
        .load(conn)
        .await
}

/// Returns a push, or `None` if there is none.
pub async fn get_push(conn: &mut AsyncPgConnection, scope: &Scope, id: DeliveryId) -> QueryResult<Option<PushRow>> {
    Ok(find_pushes(conn, scope, &[id.0]).await?.pop())
}
