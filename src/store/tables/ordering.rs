//! Ordering keys: their locks, and the head of each key.

use std::collections::BTreeSet;

use diesel::QueryResult;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::lists::pages::IdRow;
use crate::store::statement::statement;

/// Locks ordering keys until the transaction ends.
pub async fn lock_keys(conn: &mut AsyncPgConnection, scope: &Scope, keys: &[String]) -> QueryResult<()> {
    statement!("lock_keys")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(keys)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Locks the ordering keys of deliveries until the transaction ends.
pub async fn lock_keys_of_deliveries(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: &[DeliveryId],
) -> QueryResult<()> {
    let query = statement!("lock_keys_of_deliveries").query().bind::<Integer, _>(scope.namespace);
    query.bind::<Array<BigInt>, _>(ids).cached().execute(conn).await.map(drop)
}

/// Stands for the workers as the consumer of an ordering key. All other consumers are subscriptions.
pub const PULL_QUEUE: SubscriptionId = SubscriptionId(0);

/// An ordering key and its consumer: a subscription, or [`PULL_QUEUE`].
pub type ConsumerKey = (String, SubscriptionId);

/// Returns the heads of `keys` that are pending and wait for nothing but their key. The caller must hold
/// the locks of the keys.
pub async fn find_heads(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    keys: &BTreeSet<ConsumerKey>,
) -> QueryResult<Vec<DeliveryId>> {
    let rows: Vec<IdRow> = statement!("find_heads")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(keys.iter().map(|(_, consumer)| *consumer).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(IdRow::ids(rows, DeliveryId))
}
