//! Subscriptions and their secrets.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::prelude::{BoolExpressionMethods, ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::Serialize;

use crate::domain::encryption::StoredText;
use crate::domain::ids::{DeliveryId, NamespaceId, SubscriptionId, SubscriptionKey};
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::pages::Page;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::{subscription_secrets, subscriptions};

/// The current state of a subscription. The migration describes the columns.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = subscriptions, check_for_backend(diesel::pg::Pg))]
pub struct SubscriptionRow {
    pub id: SubscriptionId,
    pub version: i32,
    pub url: String,
    pub spec: JsonColumn,
    pub is_active: bool,
    pub inactive_reason: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The new state of a subscription.
#[derive(Debug, Clone)]
pub(crate) struct SubscriptionState<'a> {
    pub url: &'a str,
    /// All settings, as JSON.
    pub spec: &'a RawJson,
    pub is_active: bool,
    /// Why the server deactivated it. `None` if the server did not.
    pub inactive_reason: Option<&'a str>,
}

/// A filter for subscriptions. Its fields are named as in the API.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct SubscriptionFilter {
    pub is_active: Option<bool>,
}

/// Returns the id of a subscription that is to be stored. Its secrets are bound to it before they are stored.
pub(crate) async fn next_subscription_id(conn: &mut AsyncPgConnection) -> QueryResult<SubscriptionId> {
    #[derive(QueryableByName)]
    struct Next {
        #[diesel(sql_type = BigInt)]
        id: SubscriptionId,
    }
    statement!("next_subscription_id").query().load_one::<Next>(conn).await.map(|next| next.id)
}

/// Stores a new subscription.
pub(crate) async fn insert_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
    state: &SubscriptionState<'_>,
) -> QueryResult<SubscriptionRow> {
    statement!("insert_subscription")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Text, _>(state.url)
        .bind::<Json, _>(JsonColumn(state.spec.clone()))
        .bind::<Bool, _>(state.is_active)
        .bind::<Nullable<Text>, _>(state.inactive_reason)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .load_one(conn)
        .await
}

/// Changes a subscription and increments its version. The subscription must be locked.
pub(crate) async fn update_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
    state: &SubscriptionState<'_>,
) -> QueryResult<SubscriptionRow> {
    statement!("update_subscription")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Text, _>(state.url)
        .bind::<Json, _>(JsonColumn(state.spec.clone()))
        .bind::<Bool, _>(state.is_active)
        .bind::<Nullable<Text>, _>(state.inactive_reason)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .load_one(conn)
        .await
}

/// Marks a subscription as deleted. Its row stays, since pushes and dead letters refer to it.
pub(crate) async fn delete_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
) -> QueryResult<()> {
    statement!("delete_subscription")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .execute(conn)
        .await
        .map(drop)
}

/// The subscriptions of a namespace that have not been deleted.
#[diesel::dsl::auto_type(no_type_alias)]
fn existing(namespace: NamespaceId) -> _ {
    let is_existing = subscriptions::namespace_id.eq(namespace).and(subscriptions::deleted_at.is_null());
    subscriptions::table.filter(is_existing)
}

/// Returns a subscription, or `None` if it does not exist or has been deleted.
pub(crate) async fn get_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
) -> QueryResult<Option<SubscriptionRow>> {
    let query = existing(scope.namespace).filter(subscriptions::id.eq(id)).select(SubscriptionRow::as_select());
    query.load_first(conn).await.optional()
}

/// Where a subscription sends, and how people call it.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = subscriptions, check_for_backend(diesel::pg::Pg))]
pub struct SubscriptionAddress {
    pub id: SubscriptionId,
    pub version: i32,
    pub url: String,
    pub is_active: bool,
    #[diesel(select_expression = sql("spec->>'name'"), select_expression_type = SqlLiteral<Nullable<Text>>)]
    pub name: Option<String>,
    /// The method of its requests, unless it is the usual one.
    #[diesel(select_expression = sql("spec->>'method'"), select_expression_type = SqlLiteral<Nullable<Text>>)]
    pub method: Option<String>,
}

/// Returns where those of `ids` send that have not been deleted.
pub(crate) async fn addresses_of_subscriptions(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: &BTreeSet<SubscriptionId>,
) -> QueryResult<Vec<SubscriptionAddress>> {
    let is_one_of = subscriptions::id.eq_any(ids.iter().copied().collect::<Vec<_>>());
    existing(scope.namespace).filter(is_one_of).select(SubscriptionAddress::as_select()).load(conn).await
}

/// Returns a subscription and locks it until the transaction ends.
pub(crate) async fn lock_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
) -> QueryResult<Option<SubscriptionRow>> {
    let query = existing(scope.namespace).filter(subscriptions::id.eq(id)).select(SubscriptionRow::as_select());
    query.for_update().load_first(conn).await.optional()
}

/// Returns those of `keys` that have not been deleted, and locks them against deletion until the
/// transaction ends.
pub(crate) async fn lock_existing_subscriptions(
    conn: &mut AsyncPgConnection,
    keys: &BTreeSet<SubscriptionKey>,
) -> QueryResult<BTreeSet<SubscriptionKey>> {
    let rows: Vec<SubscriptionKeyRow> = statement!("lock_existing_subscriptions")
        .query()
        .bind::<Array<Integer>, _>(keys.iter().map(|key| key.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(keys.iter().map(|key| key.id).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(rows.into_iter().map(|row| row.namespace_id.subscription(row.id)).collect())
}

#[derive(QueryableByName)]
struct SubscriptionKeyRow {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    id: SubscriptionId,
}

/// Returns a page of subscriptions.
pub(crate) async fn list_subscriptions(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &SubscriptionFilter,
    page: Page,
) -> QueryResult<Vec<SubscriptionRow>> {
    let mut query = existing(scope.namespace).into_boxed();
    if let Some(is_active) = filter.is_active {
        query = query.filter(subscriptions::is_active.eq(is_active));
    }
    query = match (page.after, page.descending) {
        (Some(after), false) => query.filter(subscriptions::id.gt(after)),
        (Some(after), true) => query.filter(subscriptions::id.lt(after)),
        (None, _) => query,
    };
    query = match page.descending {
        false => query.order(subscriptions::id),
        true => query.order(subscriptions::id.desc()),
    };
    query.limit(page.limit).select(SubscriptionRow::as_select()).load(conn).await
}

/// Returns the number of subscriptions that have not been deleted.
pub(crate) async fn count_subscriptions(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<i64> {
    existing(scope.namespace).count().load_one(conn).await
}

/// Returns up to `limit` active subscriptions that push to a URL.
pub(crate) async fn active_subscriptions_of(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    url: &str,
    limit: i64,
) -> QueryResult<Vec<SubscriptionRow>> {
    existing(scope.namespace)
        .filter(subscriptions::url.eq(url).and(subscriptions::is_active))
        .order(subscriptions::id)
        .limit(limit)
        .select(SubscriptionRow::as_select())
        .load(conn)
        .await
}

/// Returns the ids of all active subscriptions that push to a URL.
pub(crate) async fn active_subscription_ids_of(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    url: &str,
) -> QueryResult<Vec<SubscriptionId>> {
    existing(scope.namespace)
        .filter(subscriptions::url.eq(url).and(subscriptions::is_active))
        .select(subscriptions::id)
        .load(conn)
        .await
}

/// Adds a new secret to a subscription. Earlier secrets stay in use for `overlap_seconds` at most, and
/// expired ones are deleted.
pub(crate) async fn replace_secret(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    subscription_id: SubscriptionId,
    secret: &StoredText,
    overlap_seconds: f64,
) -> QueryResult<()> {
    statement!("expire_secrets")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(subscription_id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(overlap_seconds)
        .execute(conn)
        .await?;
    let delete = statement!("delete_expired_secrets").query().bind::<Integer, _>(scope.namespace);
    delete.bind::<BigInt, _>(subscription_id).bind::<Nullable<Timestamptz>, _>(scope.now).execute(conn).await?;
    diesel::insert_into(subscription_secrets::table)
        .values((
            subscription_secrets::namespace_id.eq(scope.namespace),
            subscription_secrets::subscription_id.eq(subscription_id),
            subscription_secrets::secret.eq(secret.as_secret_column()),
        ))
        .execute(conn)
        .await
        .map(drop)
}

/// Returns the number of a subscription's secrets that are in use.
pub(crate) async fn count_secrets(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    subscription_id: SubscriptionId,
) -> QueryResult<i64> {
    subscription_secrets::table
        .filter(subscription_secrets::namespace_id.eq(scope.namespace))
        .filter(subscription_secrets::subscription_id.eq(subscription_id))
        .count()
        .load_one(conn)
        .await
}

/// Returns a deleted subscription of any namespace of which not all open pushes have been cancelled, if there is one.
pub(crate) async fn find_undrained(conn: &mut AsyncPgConnection) -> QueryResult<Option<SubscriptionKey>> {
    let found: Option<(NamespaceId, SubscriptionId)> = subscriptions::table
        .filter(subscriptions::deleted_at.is_not_null().and(subscriptions::drained_at.is_null()))
        .order((subscriptions::namespace_id, subscriptions::id))
        .select((subscriptions::namespace_id, subscriptions::id))
        .load_first(conn)
        .await
        .optional()?;
    Ok(found.map(|(namespace, id)| namespace.subscription(id)))
}

/// The open ones among a range of a subscription's pushes.
#[derive(Debug, QueryableByName)]
pub(crate) struct OpenDeliveries {
    /// The pushes that are open and whose cancellation has not been requested.
    #[diesel(sql_type = Array<BigInt>)]
    pub open: Vec<DeliveryId>,
    /// The last push that was read. `None` if there are no more.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub last: Option<DeliveryId>,
}

/// Reads the next `rows` pushes of a subscription behind `after`, open or not, since millions of finished
/// ones may precede the first open one. The statement selects a range and orders by both columns of the
/// index: otherwise the planner might walk the whole table by its primary key.
pub(crate) async fn find_open_deliveries(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    subscription_id: SubscriptionId,
    after: DeliveryId,
    rows: i64,
) -> QueryResult<OpenDeliveries> {
    statement!("find_open_deliveries")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(subscription_id)
        .bind::<BigInt, _>(after)
        .bind::<BigInt, _>(rows)
        .load_one(conn)
        .await
}

/// Records that a deleted subscription has no open pushes left.
pub(crate) async fn mark_drained(conn: &mut AsyncPgConnection, scope: &Scope, id: SubscriptionId) -> QueryResult<()> {
    statement!("mark_drained")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .execute(conn)
        .await
        .map(drop)
}
