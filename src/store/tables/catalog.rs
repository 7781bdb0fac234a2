//! The catalog: the active subscriptions and the event types, of which each server keeps a snapshot to match and check
//! events, and the generation number that identifies the current set.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Bool, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{NamespaceId, SubscriptionId};
use crate::domain::publish_limits::NamespaceLimits;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::limits::read_limits;

/// Gives the catalog a new generation. The number is random: a counter could reach the same number again
/// after a restore, with other subscriptions. Call this first: its row lock serialises all changes of
/// subscriptions and event types.
pub(crate) async fn renew_generation(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<()> {
    let renew = statement!("renew_generation").query();
    renew.bind::<Integer, _>(scope.namespace).execute(conn).await.map(drop)
}

/// A subscription with what is needed to match events and to send pushes.
#[derive(Debug, QueryableByName)]
pub(crate) struct CatalogRow {
    #[diesel(sql_type = BigInt)]
    pub id: SubscriptionId,
    #[diesel(sql_type = Integer)]
    pub version: i32,
    /// The settings, as JSON.
    #[diesel(sql_type = Json)]
    pub spec: JsonColumn,
    /// The secrets to sign with, the current one first.
    #[diesel(sql_type = Array<Text>)]
    pub secrets: Vec<String>,
    /// The time at which each secret expires.
    #[diesel(sql_type = Array<Nullable<Timestamptz>>)]
    pub secrets_expire_at: Vec<Option<DateTime<Utc>>>,
}

/// The current generation of the catalog of one namespace.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct CatalogGeneration {
    #[diesel(sql_type = Integer)]
    pub namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    pub generation: i64,
}

/// Returns the generations of the catalogs of all namespaces.
pub(crate) async fn load_generations(conn: &mut AsyncPgConnection) -> QueryResult<Vec<CatalogGeneration>> {
    statement!("load_generations").query().cached().load(conn).await
}

/// Returns the generation of the catalog of a namespace, or `None` if there is no such namespace.
pub(crate) async fn load_generation(conn: &mut AsyncPgConnection, namespace: NamespaceId) -> QueryResult<Option<i64>> {
    let query = statement!("load_generation").query().bind::<Integer, _>(namespace).cached();
    let row: Option<CatalogGeneration> = query.load_one(conn).await.optional()?;
    Ok(row.map(|row| row.generation))
}

/// The generation of the catalog, with a subscription, an event type or neither.
#[derive(QueryableByName)]
struct GenerationRow {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    generation: i64,
    #[diesel(sql_type = Bool)]
    is_strict: bool,
    #[diesel(sql_type = Nullable<Json>)]
    limits: Option<JsonColumn>,
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<SubscriptionId>,
    #[diesel(sql_type = Nullable<Integer>)]
    version: Option<i32>,
    #[diesel(sql_type = Nullable<Json>)]
    spec: Option<JsonColumn>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    secrets: Option<Vec<String>>,
    #[diesel(sql_type = Nullable<Array<Nullable<Timestamptz>>>)]
    secrets_expire_at: Option<Vec<Option<DateTime<Utc>>>>,
    #[diesel(sql_type = Nullable<Text>)]
    event_type: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    schema_digest: Option<String>,
}

impl GenerationRow {
    fn subscription(self) -> Option<CatalogRow> {
        Some(CatalogRow {
            id: self.id?,
            version: self.version?,
            spec: self.spec?,
            secrets: self.secrets?,
            secrets_expire_at: self.secrets_expire_at?,
        })
    }
}

/// The catalog of one namespace.
#[derive(Debug)]
pub(crate) struct LoadedCatalog {
    pub generation: i64,
    /// All active subscriptions.
    pub subscriptions: Vec<CatalogRow>,
    /// All event types, each with the digest of its schema, if it has one.
    pub event_types: BTreeMap<String, Option<String>>,
    /// Whether events of other types are refused.
    pub is_strict: bool,
    /// What the namespace may have or do at most.
    pub limits: NamespaceLimits,
}

/// Returns the catalogs of namespaces. A namespace that does not exist is left out. One statement reads all, in one
/// snapshot: rows stored under an older generation would count as current after a restore to that
/// generation.
pub(crate) async fn load_catalogs(
    conn: &mut AsyncPgConnection,
    namespaces: &[NamespaceId],
) -> QueryResult<BTreeMap<NamespaceId, LoadedCatalog>> {
    let rows: Vec<GenerationRow> =
        statement!("load_catalogs").query().bind::<Array<Integer>, _>(namespaces).cached().load(conn).await?;
    let mut catalogs: BTreeMap<NamespaceId, LoadedCatalog> = BTreeMap::new();
    for mut row in rows {
        let catalog = catalogs.entry(row.namespace_id).or_insert(LoadedCatalog {
            generation: row.generation,
            subscriptions: Vec::new(),
            event_types: BTreeMap::new(),
            is_strict: row.is_strict,
            limits: read_limits(row.limits.as_ref()),
        });
        if let Some(name) = row.event_type.take() {
            catalog.event_types.insert(name, row.schema_digest.take());
        }
        catalog.subscriptions.extend(row.subscription());
    }
    Ok(catalogs)
}

/// Returns one subscription, active or not, in the form of [`load_catalogs`].
pub(crate) async fn load_catalog_row(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
) -> QueryResult<Option<CatalogRow>> {
    statement!("load_catalog_row")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .cached()
        .load_one(conn)
        .await
        .optional()
}
