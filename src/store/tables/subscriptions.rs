//! Subscriptions: written whole, and read as they stand.

use chrono::{DateTime, Utc};
use diesel::prelude::{BoolExpressionMethods, ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Json, Nullable, Text, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, NamespaceId, SubscriptionId};
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::{subscription_secrets, subscriptions};

/// A subscription, as it stands.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = subscriptions, check_for_backend(diesel::pg::Pg))]
#[expect(missing_docs, reason = "the columns are described in the migration")]
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

/// What a subscription is to say.
#[derive(Debug, Clone)]
pub struct SubscriptionState<'a> {
    /// Where pushes go.
    pub url: &'a str,
    /// All that was set.
    pub spec: &'a RawJson,
    /// Whether anything is pushed.
    pub is_active: bool,
    /// Why not, if we decided it.
    pub inactive_reason: Option<&'a str>,
}

/// Adds a subscription.
pub async fn insert_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    state: &SubscriptionState<'_>,
) -> QueryResult<SubscriptionRow> {
    statement!("insert_subscription")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(state.url)
        .bind::<Json, _>(JsonColumn(state.spec.clone()))
        .bind::<Bool, _>(state.is_active)
        .bind::<Nullable<Text>, _>(state.inactive_reason)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .get_result(conn)
        .await
}

/// Changes a subscription, which must be locked; its version grows.
pub async fn update_subscription(
    conn: &mut AsyncPgConnection,
    id: SubscriptionId,
    now: Option<DateTime<Utc>>,
    state: &SubscriptionState<'_>,
) -> QueryResult<SubscriptionRow> {
    statement!("update_subscription")
        .query()
        .bind::<BigInt, _>(id)
        .bind::<Text, _>(state.url)
        .bind::<Json, _>(JsonColumn(state.spec.clone()))
        .bind::<Bool, _>(state.is_active)
        .bind::<Nullable<Text>, _>(state.inactive_reason)
        .bind::<Nullable<Timestamptz>, _>(now)
        .get_result(conn)
        .await
}

/// Takes a subscription away; what points at it stays.
pub async fn delete_subscription(
    conn: &mut AsyncPgConnection,
    id: SubscriptionId,
    now: Option<DateTime<Utc>>,
) -> QueryResult<()> {
    statement!("delete_subscription")
        .query()
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(now)
        .execute(conn)
        .await
        .map(drop)
}

/// The subscriptions that have not been taken away.
#[diesel::dsl::auto_type(no_type_alias)]
fn present(namespace: NamespaceId) -> _ {
    let is_present = subscriptions::namespace_id.eq(namespace).and(subscriptions::deleted_at.is_null());
    subscriptions::table.filter(is_present)
}

/// A subscription, if there is one.
pub async fn get_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
) -> QueryResult<Option<SubscriptionRow>> {
    let query = present(scope.namespace).filter(subscriptions::id.eq(id)).select(SubscriptionRow::as_select());
    query.first(conn).await.optional()
}

/// The same, locked until the transaction ends.
pub async fn lock_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SubscriptionId,
) -> QueryResult<Option<SubscriptionRow>> {
    let query = present(scope.namespace).filter(subscriptions::id.eq(id)).select(SubscriptionRow::as_select());
    query.for_update().first(conn).await.optional()
}

/// Of these subscriptions, those that have not been taken away. They will not be until the
/// transaction ends.
pub async fn hold_living(conn: &mut AsyncPgConnection, ids: &[SubscriptionId]) -> QueryResult<Vec<SubscriptionId>> {
    subscriptions::table
        .filter(subscriptions::id.eq_any(ids))
        .filter(subscriptions::deleted_at.is_null())
        .order(subscriptions::id)
        .select(subscriptions::id)
        .for_share()
        .load(conn)
        .await
}

/// A page of subscriptions, in the order of ids.
pub async fn list_subscriptions(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    is_active: Option<bool>,
    after: i64,
    limit: i64,
) -> QueryResult<Vec<SubscriptionRow>> {
    let mut query = present(scope.namespace).filter(subscriptions::id.gt(after)).into_boxed();
    if let Some(is_active) = is_active {
        query = query.filter(subscriptions::is_active.eq(is_active));
    }
    query.order(subscriptions::id).limit(limit).select(SubscriptionRow::as_select()).load(conn).await
}

/// How many subscriptions there are.
pub async fn count_subscriptions(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<i64> {
    present(scope.namespace).count().get_result(conn).await
}

/// The active subscriptions that push to a URL.
pub async fn active_subscriptions_of(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    url: &str,
    limit: i64,
) -> QueryResult<Vec<SubscriptionRow>> {
    present(scope.namespace)
        .filter(subscriptions::url.eq(url).and(subscriptions::is_active))
        .order(subscriptions::id)
        .limit(limit)
        .select(SubscriptionRow::as_select())
        .load(conn)
        .await
}

/// Returns the ids of all active subscriptions that push to a URL.
pub async fn active_ids_of(conn: &mut AsyncPgConnection, scope: &Scope, url: &str) -> QueryResult<Vec<SubscriptionId>> {
    present(scope.namespace)
        .filter(subscriptions::url.eq(url).and(subscriptions::is_active))
        .select(subscriptions::id)
        .load(conn)
        .await
}

/// Gives a subscription a new secret; those before it are used along with it for
/// `overlap_seconds` at most, and what has expired by now is forgotten.
pub async fn replace_secret(
    conn: &mut AsyncPgConnection,
    subscription_id: SubscriptionId,
    secret: &str,
    overlap_seconds: f64,
    now: Option<DateTime<Utc>>,
) -> QueryResult<()> {
    let expire = "UPDATE waybill.subscription_secrets \
                  SET expires_at = least(expires_at, coalesce($2, now()) + make_interval(secs => $3)) \
                  WHERE subscription_id = $1";
    sql_query(expire)
        .bind::<BigInt, _>(subscription_id)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Double, _>(overlap_seconds)
        .execute(conn)
        .await?;
    let forget = "DELETE FROM waybill.subscription_secrets \
                  WHERE subscription_id = $1 AND expires_at <= coalesce($2, now())";
    sql_query(forget).bind::<BigInt, _>(subscription_id).bind::<Nullable<Timestamptz>, _>(now).execute(conn).await?;
    diesel::insert_into(subscription_secrets::table)
        .values((subscription_secrets::subscription_id.eq(subscription_id), subscription_secrets::secret.eq(secret)))
        .execute(conn)
        .await
        .map(drop)
}

/// How many secrets of a subscription are in use.
pub async fn count_secrets(conn: &mut AsyncPgConnection, subscription_id: SubscriptionId) -> QueryResult<i64> {
    subscription_secrets::table
        .filter(subscription_secrets::subscription_id.eq(subscription_id))
        .count()
        .get_result(conn)
        .await
}

/// A subscription that was taken away and whose open deliveries have not all been called off.
pub async fn find_undrained(conn: &mut AsyncPgConnection) -> QueryResult<Option<SubscriptionId>> {
    subscriptions::table
        .filter(subscriptions::deleted_at.is_not_null().and(subscriptions::drained_at.is_null()))
        .order(subscriptions::id)
        .select(subscriptions::id)
        .first(conn)
        .await
        .optional()
}

/// A stretch of a subscription's deliveries.
#[derive(Debug, QueryableByName)]
pub struct OpenDeliveries {
    /// Those that are open and have not been called off.
    #[diesel(sql_type = Array<BigInt>)]
    pub open: Vec<DeliveryId>,
    /// The last of all; none if there are no more.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub last: Option<DeliveryId>,
}

/// The next `rows` deliveries of a subscription behind one of them, open or not: there may be
/// millions that are over before the first that is open. Ordered by both columns, and asked for
/// as a range, or the planner might walk the whole table by its key.
pub async fn find_open_deliveries(
    conn: &mut AsyncPgConnection,
    subscription_id: SubscriptionId,
    after: DeliveryId,
    rows: i64,
) -> QueryResult<OpenDeliveries> {
    statement!("find_open_deliveries")
        .query()
        .bind::<BigInt, _>(subscription_id)
        .bind::<BigInt, _>(after)
        .bind::<BigInt, _>(rows)
        .get_result(conn)
        .await
}

/// Nothing of it is open any more.
pub async fn mark_drained(
    conn: &mut AsyncPgConnection,
    id: SubscriptionId,
    now: Option<DateTime<Utc>>,
) -> QueryResult<()> {
    statement!("mark_drained")
        .query()
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(now)
        .execute(conn)
        .await
        .map(drop)
}
