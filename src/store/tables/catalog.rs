//! The catalog: the active subscriptions, of which each server keeps a snapshot to match events, and the
//! generation number that identifies the current set.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryDsl, QueryableByName};
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::SubscriptionId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::subscription_catalog;

/// Gives the catalog a new generation. The number is random: a counter could reach the same number again
/// after a restore, with other subscriptions. Call this first: its row lock serialises all changes of
/// subscriptions.
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

/// Returns the generation of the current catalog.
pub(crate) async fn load_generation(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<i64> {
    subscription_catalog::table.find(scope.namespace).select(subscription_catalog::generation).first(conn).await
}

/// The generation of the catalog, with a subscription or none.
#[derive(QueryableByName)]
struct GenerationRow {
    #[diesel(sql_type = BigInt)]
    generation: i64,
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

/// Returns the generation of the catalog and all active subscriptions. One statement reads both, in one
/// snapshot: rows stored under an older generation would count as current after a restore to that
/// generation.
pub(crate) async fn load_catalog(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<(i64, Vec<CatalogRow>)> {
    let rows: Vec<GenerationRow> =
        statement!("load_catalog").query().bind::<Integer, _>(scope.namespace).cached().load(conn).await?;
    let generation = rows.as_slice().first().ok_or(diesel::NotFound)?.generation;
    Ok((generation, rows.into_iter().filter_map(GenerationRow::subscription).collect()))
}

/// Returns one subscription, active or not, in the form of [`load_catalog`].
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
        .get_result(conn)
        .await
        .optional()
}
