//! Lists of audit entries with a bounded cost.
//!
//! As in [`crate::store::lists::dead_letters`], a filter without an index is applied to a bounded number of rows.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::AsyncPgConnection;
use serde::Serialize;

use crate::domain::audit::AuditAction;
use crate::domain::scope::Scope;
use crate::store::lists::filtered_query::{FilteredQuery, IndexRange};
use crate::store::lists::pages::{IdRow, Page, page_end};
use crate::store::tables::columns::JsonColumn;

/// An entry of the audit log. The migration describes the columns.
#[derive(Debug, Clone, QueryableByName)]
pub struct AuditRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
    #[diesel(sql_type = Text)]
    pub action: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub actor: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub subject_kind: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub subject_id: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub address: Option<String>,
    #[diesel(sql_type = Json)]
    pub detail: JsonColumn,
}

/// A filter for audit entries. Its fields are named as in the API.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AuditFilter {
    pub action: Option<AuditAction>,
    pub actor: Option<String>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

impl AuditFilter {
    /// Returns whether rows must be read and discarded.
    fn needs_scan(&self) -> bool {
        let has_both = self.action.is_some() && self.actor.is_some();
        has_both || self.since.is_some() || self.until.is_some()
    }

    /// Returns the index range to read and its value, or `None` for the index by id.
    fn index_range(&self) -> Option<(IndexRange, &str)> {
        let range = |column| IndexRange { column, id: "id", cast: "" };
        match (&self.actor, self.action) {
            (Some(actor), _) => Some((range("actor"), actor)),
            (None, Some(action)) => Some((range("action"), action.as_str())),
            (None, None) => None,
        }
    }

    fn order(&self, page: &Page) -> String {
        self.index_range().map_or_else(|| format!("id {}", page.direction()), |(range, _)| range.order(page))
    }
}

const COLUMNS: &str = "id, created_at, action, actor, subject_kind, subject_id, address, detail";

/// Returns a page of audit entries, and the position of the next page if there may be more.
pub async fn list_audit_entries(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &AuditFilter,
    page: Page,
) -> QueryResult<(Vec<AuditRow>, Option<i64>)> {
    let order = filter.order(&page);
    let scan_end = match filter.needs_scan() {
        true => {
            let rows: Vec<IdRow> = indexed("id", scope, filter, page).load(conn, &order, page.scan - 1, 1).await?;
            rows.last().map(|row| row.id)
        }
        false => None,
    };
    let statement = indexed(COLUMNS, scope, filter, page)
        .and_given::<BigInt, _>(&format!("id {}", page.up_to()), scan_end)
        .and_given::<Text, _>("action =", filter.action.filter(|_| filter.actor.is_some()).map(AuditAction::as_str))
        .and_time_range("created_at", filter.since, filter.until);
    let rows: Vec<AuditRow> = statement.load(conn, &order, 0, page.limit).await?;
    let next = page_end(&rows, page.limit, |row| row.id).or(scan_end);
    Ok((rows, next))
}

/// Returns the query with the conditions that an index serves.
fn indexed<'a>(columns: &str, scope: &Scope, filter: &'a AuditFilter, page: Page) -> FilteredQuery<'a> {
    let statement = FilteredQuery::new(format!("SELECT {columns} FROM waybill.audit_log WHERE true"))
        .and::<Integer, _>("namespace_id =", scope.namespace);
    match filter.index_range() {
        Some((index, value)) => statement.and_range::<Text, _>(&index, value, &page),
        None => statement.and_page("id", &page),
    }
}
