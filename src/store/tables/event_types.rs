//! Event types and the versions of their schemas.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{
    ExpressionMethods, OptionalExtension, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper,
};
use diesel::sql_types::{BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{EventId, NamespaceId};
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::{event_type_versions, event_types};

/// An event type. The migration describes the columns.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = event_types, check_for_backend(diesel::pg::Pg))]
pub(crate) struct EventTypeRow {
    pub id: i64,
    pub name: String,
    pub description: Option<String>,
    pub schema: Option<JsonColumn>,
    pub schema_digest: Option<String>,
    pub examples: JsonColumn,
    pub version: i32,
    pub revision: i32,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The new state of an event type.
#[derive(Debug, Clone)]
pub(crate) struct EventTypeState<'a> {
    pub name: &'a str,
    pub description: Option<&'a str>,
    /// The schema and its digest.
    pub schema: Option<(&'a RawJson, &'a str)>,
    pub examples: &'a RawJson,
}

/// An event of some type, with its payload.
#[derive(Debug, QueryableByName)]
pub(crate) struct RecentEvent {
    #[diesel(sql_type = BigInt)]
    pub id: EventId,
    #[diesel(sql_type = Nullable<Json>)]
    pub payload: Option<JsonColumn>,
}

/// Stores a new event type. Returns `None` if there is one of this name.
pub(crate) async fn insert_event_type(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    state: &EventTypeState<'_>,
) -> QueryResult<Option<EventTypeRow>> {
    statement!("insert_event_type")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(state.name)
        .bind::<Nullable<Text>, _>(state.description)
        .bind::<Nullable<Json>, _>(state.schema.map(|(schema, _)| JsonColumn(schema.clone())))
        .bind::<Nullable<Text>, _>(state.schema.map(|(_, digest)| digest))
        .bind::<Json, _>(JsonColumn(state.examples.clone()))
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .load_one(conn)
        .await
        .optional()
}

/// Changes an event type. Its row must be locked.
pub(crate) async fn update_event_type(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    state: &EventTypeState<'_>,
) -> QueryResult<EventTypeRow> {
    statement!("update_event_type")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(state.name)
        .bind::<Nullable<Text>, _>(state.description)
        .bind::<Nullable<Json>, _>(state.schema.map(|(schema, _)| JsonColumn(schema.clone())))
        .bind::<Nullable<Text>, _>(state.schema.map(|(_, digest)| digest))
        .bind::<Json, _>(JsonColumn(state.examples.clone()))
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .load_one(conn)
        .await
}

/// Keeps the schema of an event type as one of its latest `max_versions`.
pub(crate) async fn keep_event_type_version(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    row: &EventTypeRow,
    max_versions: i32,
) -> QueryResult<()> {
    statement!("keep_event_type_version")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(&row.name)
        .bind::<Integer, _>(row.version)
        .bind::<Nullable<Json>, _>(row.schema.clone())
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Integer, _>(max_versions)
        .execute(conn)
        .await
        .map(drop)
}

/// Removes an event type and all versions of its schema.
pub(crate) async fn delete_event_type(conn: &mut AsyncPgConnection, scope: &Scope, name: &str) -> QueryResult<()> {
    let row =
        event_types::table.filter(event_types::namespace_id.eq(scope.namespace)).filter(event_types::name.eq(name));
    diesel::delete(row).execute(conn).await.map(drop)
}

/// Returns an event type, or `None` if none of this name is declared.
pub(crate) async fn get_event_type(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    name: &str,
) -> QueryResult<Option<EventTypeRow>> {
    let query = event_types::table.filter(event_types::namespace_id.eq(scope.namespace));
    query.filter(event_types::name.eq(name)).select(EventTypeRow::as_select()).load_first(conn).await.optional()
}

/// Returns an event type and locks it until the transaction ends.
pub(crate) async fn lock_event_type(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    name: &str,
) -> QueryResult<Option<EventTypeRow>> {
    let query = event_types::table.filter(event_types::namespace_id.eq(scope.namespace));
    let query = query.filter(event_types::name.eq(name)).select(EventTypeRow::as_select()).for_update();
    query.load_first(conn).await.optional()
}

/// Returns the number of event types of a namespace.
pub(crate) async fn count_event_types(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<i64> {
    event_types::table.filter(event_types::namespace_id.eq(scope.namespace)).count().load_one(conn).await
}

/// Returns the versions of a schema that are kept, the latest first.
pub(crate) async fn kept_versions(conn: &mut AsyncPgConnection, scope: &Scope, name: &str) -> QueryResult<Vec<i32>> {
    let query = event_type_versions::table.filter(event_type_versions::namespace_id.eq(scope.namespace));
    let query = query.filter(event_type_versions::name.eq(name)).order(event_type_versions::version.desc());
    query.select(event_type_versions::version).load(conn).await
}

/// Returns a version of a schema, or `None` if it is not kept. The schema itself may be missing, too.
pub(crate) async fn get_event_type_version(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    name: &str,
    version: i32,
) -> QueryResult<Option<Option<JsonColumn>>> {
    let query = event_type_versions::table.filter(event_type_versions::namespace_id.eq(scope.namespace));
    let query = query.filter(event_type_versions::name.eq(name)).filter(event_type_versions::version.eq(version));
    query.select(event_type_versions::schema).load_first(conn).await.optional()
}

/// Returns the schemas of event types, each with its name and digest.
pub(crate) async fn load_event_schemas(
    conn: &mut AsyncPgConnection,
    namespace: NamespaceId,
    names: &[&str],
) -> QueryResult<Vec<(String, Option<String>, Option<JsonColumn>)>> {
    let query = event_types::table.filter(event_types::namespace_id.eq(namespace));
    let query = query.filter(event_types::name.eq_any(names));
    query.select((event_types::name, event_types::schema_digest, event_types::schema)).load(conn).await
}

/// Returns the latest events of a type, with payloads of about `max_bytes` in all.
pub(crate) async fn list_recent_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_type: &str,
    max_rows: i64,
    max_bytes: i64,
) -> QueryResult<Vec<RecentEvent>> {
    statement!("list_recent_events")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(event_type)
        .bind::<BigInt, _>(max_rows)
        .bind::<BigInt, _>(max_bytes)
        .load(conn)
        .await
}
