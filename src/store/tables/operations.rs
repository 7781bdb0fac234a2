//! Operations: operators' work on many rows, and its progress.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use diesel::sql_types::{BigInt, Bool, Double, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::Serialize;

use crate::domain::dead_letter::ReplayConfig;
use crate::domain::ids::NamespaceId;
use crate::domain::json::RawJson;
use crate::domain::operation::{OperationKind, OperationStatus};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::pages::{IdRow, Page};
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::operations;

/// An operation and its progress. The migration describes the columns.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = operations, check_for_backend(diesel::pg::Pg))]
pub struct OperationRow {
    pub id: i64,
    pub namespace_id: NamespaceId,
    pub kind: String,
    pub status: String,
    pub filter: JsonColumn,
    pub config: Option<String>,
    pub reason: Option<String>,
    pub per_second: f64,
    pub actor: Option<String>,
    pub matched: i64,
    pub matched_is_exact: bool,
    pub done: i64,
    pub skipped: i64,
    pub failed: i64,
    pub last_id: i64,
    pub until_id: i64,
    pub part_of: Option<i64>,
    pub part_last_id: Option<i64>,
    pub part_is_changed: bool,
    pub part_has_failed: bool,
    pub failed_steps: i32,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// An operation to store.
#[derive(Debug, Clone)]
pub(crate) struct NewOperationRow {
    pub kind: OperationKind,
    /// The filter that selects the rows, as JSON.
    pub filter: RawJson,
    pub config: Option<ReplayConfig>,
    pub reason: Option<String>,
    pub per_second: f64,
    /// The number of matching rows, counted within a bounded number of rows.
    pub matched: i64,
    /// Whether `matched` includes all matching rows.
    pub matched_is_exact: bool,
    /// The highest id that is meant. Later rows are not included.
    pub until_id: i64,
}

/// Stores an operation. Returns its id, or `None` if `max_running` operations are running already.
pub(crate) async fn insert_operation(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    new: &NewOperationRow,
    max_running: i64,
) -> QueryResult<Option<i64>> {
    // The lock is a statement of its own: the one that counts must see what its predecessors have stored.
    statement!("lock_namespace").query().bind::<Integer, _>(scope.namespace).execute(conn).await?;
    let row: Option<IdRow> = statement!("insert_operation")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Text, _>(new.kind.as_str())
        .bind::<Json, _>(JsonColumn(new.filter.clone()))
        .bind::<Nullable<Text>, _>(new.config.map(ReplayConfig::as_str))
        .bind::<Nullable<Text>, _>(new.reason.as_deref())
        .bind::<Double, _>(new.per_second)
        .bind::<Nullable<Text>, _>(scope.actor.as_deref())
        .bind::<BigInt, _>(new.matched)
        .bind::<Bool, _>(new.matched_is_exact)
        .bind::<BigInt, _>(new.until_id)
        .bind::<BigInt, _>(max_running)
        .load_one(conn)
        .await
        .optional()?;
    Ok(row.map(|row| row.id))
}

/// Returns an operation, or `None` if there is none.
pub(crate) async fn get_operation(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: i64,
) -> QueryResult<Option<OperationRow>> {
    operations::table
        .filter(operations::namespace_id.eq(scope.namespace))
        .filter(operations::id.eq(id))
        .select(OperationRow::as_select())
        .load_first(conn)
        .await
        .optional()
}

/// A filter for the list of operations. Its fields are named as in the API.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct OperationListFilter {
    pub status: Option<OperationStatus>,
    pub kind: Option<OperationKind>,
}

/// Returns a page of operations in the order of ids.
pub(crate) async fn list_operations(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: OperationListFilter,
    page: Page,
) -> QueryResult<Vec<OperationRow>> {
    let mut query = operations::table
        .filter(operations::namespace_id.eq(scope.namespace))
        .limit(page.limit)
        .select(OperationRow::as_select())
        .into_boxed();
    if let Some(status) = filter.status {
        query = query.filter(operations::status.eq(status.as_str()));
    }
    if let Some(kind) = filter.kind {
        query = query.filter(operations::kind.eq(kind.as_str()));
    }
    query = match (page.after, page.descending) {
        (Some(after), true) => query.filter(operations::id.lt(after)),
        (Some(after), false) => query.filter(operations::id.gt(after)),
        (None, _) => query,
    };
    query = match page.descending {
        true => query.order(operations::id.desc()),
        false => query.order(operations::id.asc()),
    };
    query.load(conn).await
}

#[derive(QueryableByName)]
struct OperationKeyRow {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Locks the running operation, of any namespace, that is due for the longest time and that no other server works on, until the
/// transaction ends.
pub(crate) async fn take_operation(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
) -> QueryResult<Option<OperationRow>> {
    let statement = statement!("take_operation").query().bind::<Nullable<Timestamptz>, _>(now).cached();
    let row: Option<OperationKeyRow> = statement.load_one(conn).await.optional()?;
    match row {
        Some(OperationKeyRow { namespace_id, id }) => lock_operation(conn, namespace_id, id).await,
        None => Ok(None),
    }
}

/// Locks an operation, due or not. Returns `None` if it is over, or if another server works on it.
pub(crate) async fn lock_operation(
    conn: &mut AsyncPgConnection,
    namespace: NamespaceId,
    id: i64,
) -> QueryResult<Option<OperationRow>> {
    operations::table
        .filter(operations::namespace_id.eq(namespace))
        .filter(operations::id.eq(id))
        .filter(operations::status.eq(OperationStatus::Running.as_str()))
        .select(OperationRow::as_select())
        .for_update()
        .skip_locked()
        .load_first(conn)
        .await
        .optional()
}

/// The result of one step of an operation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The number of deliveries or dead letters that the step has dealt with, by which it is paced.
    pub handled: i64,
    /// The number of events, deliveries or dead letters that were changed.
    pub done: i64,
    /// The number of those that no longer fitted when they were locked.
    pub skipped: i64,
    /// The number of those that could not be changed because of an error.
    pub failed: i64,
    /// All rows up to this one were dealt with.
    pub last_id: i64,
    /// The event behind `last_id` that was begun and is not finished.
    pub part: Option<Part>,
    /// Whether the operation is complete.
    pub is_complete: bool,
}

/// An event whose pushes are changed in several transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub event_id: i64,
    /// The last push that was dealt with.
    pub last_id: i64,
    /// Whether any of its pushes was changed.
    pub is_changed: bool,
    /// Whether any of its pushes could not be changed because of an error.
    pub has_failed: bool,
}

/// Saves the result of a step, and sets the time of the next step according to the rate. A step that began
/// late is made up for by at most one second.
pub(crate) async fn save_operation_progress(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: i64,
    progress: &Progress,
) -> QueryResult<()> {
    statement!("save_operation_progress")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<BigInt, _>(progress.handled)
        .bind::<BigInt, _>(progress.done)
        .bind::<BigInt, _>(progress.skipped)
        .bind::<BigInt, _>(progress.failed)
        .bind::<BigInt, _>(progress.last_id)
        .bind::<Nullable<BigInt>, _>(progress.part.map(|part| part.event_id))
        .bind::<Nullable<BigInt>, _>(progress.part.map(|part| part.last_id))
        .bind::<Bool, _>(progress.part.is_some_and(|part| part.is_changed))
        .bind::<Bool, _>(progress.part.is_some_and(|part| part.has_failed))
        .bind::<Bool, _>(progress.is_complete)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Lets the next step of an operation wait for some seconds, and counts the step that failed.
pub(crate) async fn postpone_operation(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: i64,
    seconds: f64,
) -> QueryResult<()> {
    statement!("postpone_operation")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(seconds)
        .execute(conn)
        .await
        .map(drop)
}

/// Ends a running operation before it is complete. What it has done stays done. Returns whether it was running.
pub(crate) async fn end_operation(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: i64,
    status: OperationStatus,
) -> QueryResult<bool> {
    statement!("end_operation")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Text, _>(status.as_str())
        .execute(conn)
        .await
        .map(|rows| rows > 0)
}

#[derive(QueryableByName)]
struct Seconds {
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
}

/// Returns the seconds until the next step of any operation, or `None` if no operation is running.
pub(crate) async fn next_operation_in(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
) -> QueryResult<Option<f64>> {
    let row: Seconds =
        statement!("next_operation_in").query().bind::<Nullable<Timestamptz>, _>(now).cached().load_one(conn).await?;
    Ok(row.seconds)
}
