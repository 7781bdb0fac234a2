//! Reads dead letters: lists with a bounded cost, and a single one with its snapshots.
//!
//! As in [`crate::store::lists::pushes`], a filter without an index is applied to a bounded number of
//! rows.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::{Deserialize, Serialize};

use crate::domain::ids::{DeliveryId, EventId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::filtered_query::{FilteredQuery, IndexRange};
use crate::store::lists::pages::{IdRow, Page, page_end};
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;

/// A dead letter without its snapshots. The migration describes the columns.
#[derive(Debug, Clone, QueryableByName)]
pub struct DeadLetterRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = BigInt)]
    pub delivery_id: DeliveryId,
    #[diesel(sql_type = BigInt)]
    pub event_id: EventId,
    #[diesel(sql_type = BigInt)]
    pub subscription_id: SubscriptionId,
    #[diesel(sql_type = Integer)]
    pub subscription_version: i32,
    #[diesel(sql_type = Text)]
    pub reason: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub detail: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub actor: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub replayed_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Text>)]
    pub replay_actor: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub replay_reason: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub replay_config: Option<String>,
}

/// A dead letter with its snapshots, taken when the push was abandoned.
#[derive(Debug, Clone, QueryableByName)]
pub struct WholeDeadLetter {
    #[diesel(embed)]
    pub dead_letter: DeadLetterRow,
    #[diesel(sql_type = Json)]
    pub event: JsonColumn,
    #[diesel(sql_type = Json)]
    pub subscription: JsonColumn,
    #[diesel(sql_type = Json)]
    pub attempts: JsonColumn,
}

/// A filter for dead letters. Its fields are named as in the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<SubscriptionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
}

impl DeadLetterFilter {
    /// Returns whether rows must be read and discarded. An event has few dead letters, so its own are
    /// always all read.
    fn needs_scan(&self) -> bool {
        let is_narrowed =
            self.reason.is_some() || self.since.is_some() || self.until.is_some() || self.replayed.is_some();
        self.event_id.is_none() && is_narrowed
    }

    /// Returns the index range to read and its value, or `None` for the index by id.
    fn index_range(&self) -> Option<(IndexRange, i64)> {
        let (column, value) = match (self.event_id, self.subscription_id) {
            (Some(event_id), _) => ("l.event_id", event_id.0),
            (None, Some(subscription_id)) => ("l.subscription_id", subscription_id.0),
            (None, None) => return None,
        };
        Some((IndexRange { column, id: "l.id", cast: "" }, value))
    }

    fn order(&self, page: &Page) -> String {
        self.index_range().map_or_else(|| format!("l.id {}", page.direction()), |(range, _)| range.order(page))
    }
}

const COLUMNS: &str = "l.id, l.delivery_id, l.event_id, l.subscription_id, l.subscription_version, l.reason, l.detail, \
     l.actor, l.created_at, l.replayed_at, l.replay_actor, l.replay_reason, l.replay_config";

/// Returns a page of dead letters, and the position of the next page if there may be more.
pub async fn list_dead_letters(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &DeadLetterFilter,
    page: Page,
) -> QueryResult<(Vec<DeadLetterRow>, Option<i64>)> {
    let scan_end = scan_end(conn, scope, filter, page).await?;
    let statement = filtered(COLUMNS, scope, filter, page, scan_end);
    let rows: Vec<DeadLetterRow> = statement.load(conn, &filter.order(&page), 0, page.limit).await?;
    let next = page_end(&rows, page.limit, |row| row.id).or(scan_end);
    Ok((rows, next))
}

/// Returns the last id that a bounded scan may read, or `None` if it may read to the end.
async fn scan_end(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &DeadLetterFilter,
    page: Page,
) -> QueryResult<Option<i64>> {
    if !filter.needs_scan() {
        return Ok(None);
    }
    let rows: Vec<IdRow> =
        indexed("l.id", scope, filter, page).load(conn, &filter.order(&page), page.scan - 1, 1).await?;
    Ok(rows.last().map(|row| row.id))
}

/// Returns the query with the conditions that an index serves.
fn indexed<'a>(columns: &str, scope: &Scope, filter: &'a DeadLetterFilter, page: Page) -> FilteredQuery<'a> {
    let statement = FilteredQuery::new(format!("SELECT {columns} FROM waybill.dead_letters l WHERE true"))
        .and::<Integer, _>("l.namespace_id =", scope.namespace);
    let statement = match filter.index_range() {
        Some((index, value)) => statement.and_range::<BigInt, _>(&index, value, &page),
        None => statement.and_page("l.id", &page),
    };
    match (filter.event_id, filter.subscription_id) {
        (Some(_), Some(subscription_id)) => statement.and::<BigInt, _>("l.subscription_id =", subscription_id),
        _ => statement,
    }
}

/// Returns the query with all conditions, up to the end of the scan.
fn filtered<'a>(
    columns: &str,
    scope: &Scope,
    filter: &'a DeadLetterFilter,
    page: Page,
    scan_end: Option<i64>,
) -> FilteredQuery<'a> {
    let statement = indexed(columns, scope, filter, page)
        .and_given::<BigInt, _>(&format!("l.id {}", page.up_to()), scan_end)
        .and_given::<Text, _>("l.reason =", filter.reason.as_deref())
        .and_time_range("l.created_at", filter.since, filter.until);
    match filter.replayed {
        Some(true) => statement.sql(" AND l.replayed_at IS NOT NULL"),
        Some(false) => statement.sql(" AND l.replayed_at IS NULL"),
        None => statement,
    }
}

/// Returns a dead letter with its snapshots, or `None` if there is none.
pub async fn get_dead_letter(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: i64,
) -> QueryResult<Option<WholeDeadLetter>> {
    statement!("get_dead_letter")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .cached()
        .load_one(conn)
        .await
        .optional()
}

/// Locks dead letters, so that none is deleted before the transaction ends.
pub(crate) async fn lock_dead_letters(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[i64]) -> QueryResult<()> {
    statement!("lock_dead_letters")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<BigInt>, _>(ids)
        .execute(conn)
        .await
        .map(drop)
}

/// Returns the dead letters `ids`, without their snapshots.
pub async fn find_dead_letters(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: &[i64],
) -> QueryResult<Vec<DeadLetterRow>> {
    statement!("find_dead_letters")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<BigInt>, _>(ids)
        .cached()
        .load(conn)
        .await
}
