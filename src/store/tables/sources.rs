//! Sources, their secrets, and the catalog by which servers notice changes.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Double, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::Serialize;

use crate::domain::encryption::StoredText;
use crate::domain::ids::{NamespaceId, SourceId, SourceKey};
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::domain::source::TokenHash;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::pages::{IdRow, Page};
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::{source_secrets, sources};

/// The payload of the notification that sources have changed. The statement that renews the catalog sends it.
pub(crate) const SOURCES_NOTICE: &str = "sources";

/// The current state of a source. The migration describes the columns.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = sources, check_for_backend(diesel::pg::Pg))]
pub(crate) struct SourceRow {
    pub id: SourceId,
    pub version: i32,
    pub token: String,
    pub spec: JsonColumn,
    pub is_active: bool,
    pub refused: i64,
    pub last_refused_at: Option<DateTime<Utc>>,
    pub last_refusal: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A filter for sources. Its fields are named as in the API.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct SourceFilter {
    pub is_active: Option<bool>,
}

/// Gives the catalog of sources a new generation, and notifies all servers when the transaction commits.
pub(crate) async fn renew_source_generation(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    statement!("renew_source_generation").query().execute(conn).await.map(drop)
}

/// Returns the present generation of the catalog of sources.
pub(crate) async fn load_source_generation(conn: &mut AsyncPgConnection) -> QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = BigInt)]
        generation: i64,
    }
    let row: Row = statement!("load_source_generation").query().cached().load_one(conn).await?;
    Ok(row.generation)
}

/// An active source, as webhooks need it.
#[derive(Debug, Clone)]
pub(crate) struct LoadedSource {
    pub key: SourceKey,
    pub spec: RawJson,
    /// The secrets, each with the time when it expires.
    pub secrets: Vec<(StoredText, Option<DateTime<Utc>>)>,
}

/// What one statement has read of the sources.
#[derive(Debug, Clone)]
pub(crate) struct LoadedSources {
    pub generation: i64,
    pub sources: HashMap<TokenHash, LoadedSource>,
}

#[derive(QueryableByName)]
struct LoadedRow {
    #[diesel(sql_type = BigInt)]
    generation: i64,
    #[diesel(sql_type = Nullable<Binary>)]
    token_hash: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Integer>)]
    namespace_id: Option<NamespaceId>,
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<SourceId>,
    #[diesel(sql_type = Nullable<Json>)]
    spec: Option<JsonColumn>,
    #[diesel(sql_type = Nullable<Text>)]
    secret: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    expires_at: Option<DateTime<Utc>>,
}

/// Returns the active sources with these tokens, and the generation that they belong to.
pub(crate) async fn load_sources(conn: &mut AsyncPgConnection, hashes: &[TokenHash]) -> QueryResult<LoadedSources> {
    let hashes: Vec<&[u8]> = hashes.iter().map(|hash| hash.0.as_slice()).collect();
    let query = statement!("load_sources").query().bind::<Array<Binary>, _>(hashes);
    let rows: Vec<LoadedRow> = query.cached().load(conn).await?;
    let generation = rows.iter().map(|row| row.generation).next().ok_or(diesel::result::Error::NotFound)?;
    let mut sources = HashMap::new();
    for row in rows {
        let hash = row.token_hash.and_then(|hash| hash.try_into().ok()).map(TokenHash);
        let (Some(hash), Some(namespace), Some(id), Some(spec)) = (hash, row.namespace_id, row.id, row.spec) else {
            continue;
        };
        let source = sources.entry(hash).or_insert_with(|| LoadedSource {
            key: namespace.source(id),
            spec: spec.0,
            secrets: Vec::new(),
        });
        source.secrets.extend(row.secret.map(|secret| (StoredText::of_marked_column(&secret), row.expires_at)));
    }
    Ok(LoadedSources { generation, sources })
}

/// Returns the id of a source that is to be stored. Its secrets are bound to it before they are stored.
pub(crate) async fn next_source_id(conn: &mut AsyncPgConnection) -> QueryResult<SourceId> {
    statement!("next_source_id").query().load_one::<IdRow>(conn).await.map(|row| SourceId(row.id))
}

/// A source that is to be stored.
#[derive(Debug)]
pub(crate) struct NewSource<'a> {
    pub id: SourceId,
    pub token_hash: TokenHash,
    pub token: &'a StoredText,
    /// All settings, as JSON.
    pub spec: &'a RawJson,
    pub is_active: bool,
}

/// Stores a new source.
pub(crate) async fn insert_source(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    new: &NewSource<'_>,
) -> QueryResult<SourceRow> {
    statement!("insert_source")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(new.id)
        .bind::<Binary, _>(new.token_hash.0.as_slice())
        .bind::<Text, _>(new.token.to_marked_column())
        .bind::<Json, _>(JsonColumn(new.spec.clone()))
        .bind::<Bool, _>(new.is_active)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .load_one(conn)
        .await
}

/// Changes a source and increments its version. The source must be locked.
pub(crate) async fn update_source(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SourceId,
    spec: &RawJson,
    is_active: bool,
) -> QueryResult<SourceRow> {
    statement!("update_source")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Json, _>(JsonColumn(spec.clone()))
        .bind::<Bool, _>(is_active)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .load_one(conn)
        .await
}

/// Deletes a source with its secrets. Events do not refer to it.
pub(crate) async fn delete_source(conn: &mut AsyncPgConnection, scope: &Scope, id: SourceId) -> QueryResult<()> {
    diesel::delete(sources::table.filter(sources::namespace_id.eq(scope.namespace)).filter(sources::id.eq(id)))
        .execute(conn)
        .await
        .map(drop)
}

/// Returns a source, or `None` if it does not exist.
pub(crate) async fn get_source(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SourceId,
) -> QueryResult<Option<SourceRow>> {
    let query = sources::table.filter(sources::namespace_id.eq(scope.namespace)).filter(sources::id.eq(id));
    query.select(SourceRow::as_select()).load_first(conn).await.optional()
}

/// Returns a source and locks it until the transaction ends.
pub(crate) async fn lock_source(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SourceId,
) -> QueryResult<Option<SourceRow>> {
    let query = sources::table.filter(sources::namespace_id.eq(scope.namespace)).filter(sources::id.eq(id));
    query.select(SourceRow::as_select()).for_update().load_first(conn).await.optional()
}

/// Returns a page of sources.
pub(crate) async fn list_sources(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &SourceFilter,
    page: Page,
) -> QueryResult<Vec<SourceRow>> {
    let mut query = sources::table.filter(sources::namespace_id.eq(scope.namespace)).into_boxed();
    if let Some(is_active) = filter.is_active {
        query = query.filter(sources::is_active.eq(is_active));
    }
    query = match (page.after, page.descending) {
        (Some(after), false) => query.filter(sources::id.gt(after)),
        (Some(after), true) => query.filter(sources::id.lt(after)),
        (None, _) => query,
    };
    query = match page.descending {
        false => query.order(sources::id),
        true => query.order(sources::id.desc()),
    };
    query.limit(page.limit).select(SourceRow::as_select()).load(conn).await
}

/// Returns the number of sources of a namespace.
pub(crate) async fn count_sources(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<i64> {
    sources::table.filter(sources::namespace_id.eq(scope.namespace)).count().load_one(conn).await
}

/// Adds a new secret to a source. Earlier secrets are accepted for `overlap_seconds` at most, and expired ones are
/// deleted.
pub(crate) async fn replace_source_secret(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    source_id: SourceId,
    secret: &StoredText,
    overlap_seconds: f64,
) -> QueryResult<()> {
    statement!("expire_source_secrets")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(source_id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(overlap_seconds)
        .execute(conn)
        .await?;
    let delete = statement!("delete_expired_source_secrets").query().bind::<Integer, _>(scope.namespace);
    delete.bind::<BigInt, _>(source_id).bind::<Nullable<Timestamptz>, _>(scope.now).execute(conn).await?;
    diesel::insert_into(source_secrets::table)
        .values((
            source_secrets::namespace_id.eq(scope.namespace),
            source_secrets::source_id.eq(source_id),
            source_secrets::secret.eq(secret.to_marked_column()),
        ))
        .execute(conn)
        .await
        .map(drop)
}

/// Returns the number of a source's secrets that are in use.
pub(crate) async fn count_source_secrets(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    source_id: SourceId,
) -> QueryResult<i64> {
    source_secrets::table
        .filter(source_secrets::namespace_id.eq(scope.namespace))
        .filter(source_secrets::source_id.eq(source_id))
        .count()
        .load_one(conn)
        .await
}

/// The webhooks of a source that were refused since they were last recorded.
#[derive(Debug, Clone)]
pub(crate) struct RefusedWebhooks {
    pub source: SourceKey,
    pub count: i64,
    pub last_at: DateTime<Utc>,
    pub last_refusal: &'static str,
}

/// Adds refused webhooks to the counts of their sources.
pub(crate) async fn record_refused_webhooks(
    conn: &mut AsyncPgConnection,
    refused: &[RefusedWebhooks],
) -> QueryResult<()> {
    statement!("record_refused_webhooks")
        .query()
        .bind::<Array<Integer>, _>(refused.iter().map(|each| each.source.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(refused.iter().map(|each| each.source.id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(refused.iter().map(|each| each.count).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(refused.iter().map(|each| each.last_at).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(refused.iter().map(|each| each.last_refusal).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}
