//! Namespaces and their settings.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{
    ExpressionMethods, OptionalExtension, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper,
};
use diesel::sql_types::{BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::NamespaceId;
use crate::domain::json::RawJson;
use crate::domain::namespace::NamespaceSettings;
use crate::domain::redaction::Redaction;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::pages::NamePage;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::namespaces;

/// A namespace. The migrations describe the columns.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = namespaces, check_for_backend(diesel::pg::Pg))]
pub struct NamespaceRow {
    pub id: NamespaceId,
    pub name: String,
    pub settings: JsonColumn,
    pub created_at: DateTime<Utc>,
}

/// Identifies a namespace in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceRef {
    Id(NamespaceId),
    Name(String),
}

/// Creates a namespace, unless there are `max_namespaces` already or its name is taken. Those that create one at the same
/// time take turns.
pub(crate) async fn insert_namespace(
    conn: &mut AsyncPgConnection,
    name: &str,
    settings: &RawJson,
    now: Option<DateTime<Utc>>,
    max_namespaces: i64,
) -> QueryResult<Option<NamespaceRow>> {
    // The lock is a statement of its own: the one that counts must see what its predecessors have stored.
    statement!("lock_namespace").query().bind::<Integer, _>(NamespaceId::DEFAULT).execute(conn).await?;
    statement!("insert_namespace")
        .query()
        .bind::<Text, _>(name)
        .bind::<Json, _>(JsonColumn(settings.clone()))
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(max_namespaces)
        .load_one(conn)
        .await
        .optional()
}

/// Changes the settings of a namespace that is locked.
pub(crate) async fn update_namespace(
    conn: &mut AsyncPgConnection,
    id: NamespaceId,
    settings: &RawJson,
) -> QueryResult<NamespaceRow> {
    let update = statement!("update_namespace").query().bind::<Integer, _>(id);
    update.bind::<Json, _>(JsonColumn(settings.clone())).load_one(conn).await
}

/// Returns a namespace and locks it until the transaction ends.
pub(crate) async fn lock_namespace(
    conn: &mut AsyncPgConnection,
    wanted: &NamespaceRef,
) -> QueryResult<Option<NamespaceRow>> {
    let query = namespaces::table.select(NamespaceRow::as_select()).for_no_key_update();
    match wanted {
        NamespaceRef::Id(id) => query.filter(namespaces::id.eq(*id)).load_first(conn).await.optional(),
        NamespaceRef::Name(name) => query.filter(namespaces::name.eq(name)).load_first(conn).await.optional(),
    }
}

/// Returns what is redacted in a namespace: everything if its settings cannot be read by this version.
pub(crate) async fn load_redaction(conn: &mut AsyncPgConnection, namespace: NamespaceId) -> QueryResult<Redaction> {
    let row = get_namespace(conn, &NamespaceRef::Id(namespace)).await?;
    let settings = row.map(|row| serde_json::from_str::<NamespaceSettings>(row.settings.0.as_str()));
    Ok(match settings {
        Some(Ok(settings)) => settings.redaction(),
        Some(Err(_)) => Redaction::everything(),
        None => Redaction::default(),
    })
}

/// Returns a namespace, or `None` if there is none.
pub(crate) async fn get_namespace(
    conn: &mut AsyncPgConnection,
    wanted: &NamespaceRef,
) -> QueryResult<Option<NamespaceRow>> {
    let query = namespaces::table.select(NamespaceRow::as_select());
    match wanted {
        NamespaceRef::Id(id) => query.filter(namespaces::id.eq(*id)).load_first(conn).await.optional(),
        NamespaceRef::Name(name) => query.filter(namespaces::name.eq(name)).load_first(conn).await.optional(),
    }
}

/// Returns a page of namespaces in the order of their names.
pub(crate) async fn list_namespaces(conn: &mut AsyncPgConnection, page: &NamePage) -> QueryResult<Vec<NamespaceRow>> {
    let mut query = namespaces::table.limit(page.limit).select(NamespaceRow::as_select()).into_boxed();
    query = match (&page.after, page.descending) {
        (Some(after), true) => query.filter(namespaces::name.lt(after)),
        (Some(after), false) => query.filter(namespaces::name.gt(after)),
        (None, _) => query,
    };
    query = match page.descending {
        true => query.order(namespaces::name.desc()),
        false => query.order(namespaces::name.asc()),
    };
    query.load(conn).await
}
