//! Ordering keys: their locks, and the head of each key.

use std::collections::BTreeSet;

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, DeliveryKey, NamespaceId, SubscriptionId};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// Locks ordering keys, each of a namespace, until the transaction ends.
pub async fn lock_keys(conn: &mut AsyncPgConnection, keys: &BTreeSet<(NamespaceId, &str)>) -> QueryResult<()> {
    statement!("lock_keys")
        .query()
        .bind::<Array<Integer>, _>(keys.iter().map(|(namespace, _)| *namespace).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys.iter().map(|(_, key)| *key).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Locks the ordering keys of deliveries until the transaction ends.
pub async fn lock_keys_of_deliveries(conn: &mut AsyncPgConnection, deliveries: &[DeliveryKey]) -> QueryResult<()> {
    statement!("lock_keys_of_deliveries")
        .query()
        .bind::<Array<Integer>, _>(deliveries.iter().map(|key| key.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(deliveries.iter().map(|key| key.id).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Stands for the workers as the consumer of an ordering key. All other consumers are subscriptions.
pub const PULL_QUEUE: SubscriptionId = SubscriptionId(0);

/// An ordering key of a namespace and its consumer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerKey {
    pub namespace: NamespaceId,
    pub key: String,
    /// A subscription, or [`PULL_QUEUE`].
    pub consumer: SubscriptionId,
}

#[derive(QueryableByName)]
pub(in crate::store) struct DeliveryKeyRow {
    #[diesel(sql_type = Integer)]
    pub namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
}

impl DeliveryKeyRow {
    pub(in crate::store) fn keys(rows: Vec<Self>) -> Vec<DeliveryKey> {
        rows.into_iter().map(|row| row.namespace_id.delivery(row.id)).collect()
    }
}

/// Returns the heads of `keys` that are pending and wait for nothing but their key. The caller must hold
/// the locks of the keys.
pub async fn find_heads(conn: &mut AsyncPgConnection, keys: &BTreeSet<ConsumerKey>) -> QueryResult<Vec<DeliveryKey>> {
    let rows: Vec<DeliveryKeyRow> = statement!("find_heads")
        .query()
        .bind::<Array<Integer>, _>(keys.iter().map(|key| key.namespace).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys.iter().map(|key| key.key.as_str()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(keys.iter().map(|key| key.consumer).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(DeliveryKeyRow::keys(rows))
}
