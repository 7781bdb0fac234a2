//! The catalog: the active subscriptions as servers copy them to match events, and the number that
//! stands for them.

use chrono::{DateTime, Utc};
use diesel::prelude::{OptionalExtension, QueryDsl, QueryableByName};
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::SubscriptionId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::subscription_catalog;

/// Gives the catalog another number, a random one: it is not the same again after a restore and as
/// many changes. Call it first: those who change any subscription take turns by it.
pub async fn renew_generation(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<()> {
    let renew =
        "UPDATE waybill.subscription_catalog SET generation = waybill.random_generation() WHERE namespace_id = $1";
    sql_query(renew).bind::<Integer, _>(scope.namespace).execute(conn).await.map(drop)
}

/// An active subscription, as servers copy it.
#[derive(Debug, QueryableByName)]
pub struct CatalogRow {
    /// Its id.
    #[diesel(sql_type = BigInt)]
    pub id: SubscriptionId,
    /// Its version.
    #[diesel(sql_type = Integer)]
    pub version: i32,
    /// What was set.
    #[diesel(sql_type = Json)]
    pub spec: JsonColumn,
    /// What to sign with, the present secret first.
    #[diesel(sql_type = Array<Text>)]
    pub secrets: Vec<String>,
    /// Until when each.
    #[diesel(sql_type = Array<Nullable<Timestamptz>>)]
    pub secrets_expire_at: Vec<Option<DateTime<Utc>>>,
}

/// The number of the present catalog.
pub async fn load_generation(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<i64> {
    subscription_catalog::table.find(scope.namespace).select(subscription_catalog::generation).first(conn).await
}

/// A row of the catalog, or none, with the number of the catalog.
#[derive(QueryableByName)]
struct NumberedRow {
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

impl NumberedRow {
    fn row(self) -> Option<CatalogRow> {
        Some(CatalogRow {
            id: self.id?,
            version: self.version?,
            spec: self.spec?,
            secrets: self.secrets?,
            secrets_expire_at: self.secrets_expire_at?,
        })
    }
}

/// Returns all active subscriptions, and the number that stands for them. One statement, and so one
/// snapshot: rows of one catalog under the number of the one before would count as current after a
/// restore to that number.
pub async fn load_catalog(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<(i64, Vec<CatalogRow>)> {
    let rows: Vec<NumberedRow> =
        statement!("load_catalog").query().bind::<Integer, _>(scope.namespace).cached().load(conn).await?;
    let generation = rows.as_slice().first().ok_or(diesel::NotFound)?.generation;
    Ok((generation, rows.into_iter().filter_map(NumberedRow::row).collect()))
}

/// One subscription, active or not, as servers copy it.
pub async fn load_one(
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
