//! The table `ready`: the queues of deliveries that can be claimed now.

use std::fmt;

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, SmallInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::{Deserialize, Serialize};

use crate::domain::ids::{NamespaceId, SubscriptionKey};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// A queue of a namespace. Queues of two namespaces with the same name have nothing to do with each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(NamespaceId, String)", into = "(NamespaceId, String)")]
pub struct QueueKey {
    pub namespace: NamespaceId,
    /// The name in `ready`: `t:` and a tag, or `s:` and a subscription.
    pub name: String,
}

impl QueueKey {
    /// Returns the queue of a tag.
    pub fn of_tag(namespace: NamespaceId, tag: &str) -> Self {
        QueueKey { namespace, name: format!("t:{tag}") }
    }

    /// Returns the queue of a subscription's pushes.
    pub fn of_subscription(subscription: SubscriptionKey) -> Self {
        QueueKey { namespace: subscription.namespace, name: format!("s:{}", subscription.id) }
    }

    /// Returns the subscription to which the queue belongs, or `None` if it is the queue of a tag.
    pub fn subscription(&self) -> Option<SubscriptionKey> {
        Some(self.namespace.subscription(self.name.strip_prefix("s:")?.parse().ok()?))
    }
}

// Short, because notifications list many of them.
impl From<QueueKey> for (NamespaceId, String) {
    fn from(queue: QueueKey) -> Self {
        (queue.namespace, queue.name)
    }
}

impl From<(NamespaceId, String)> for QueueKey {
    fn from((namespace, name): (NamespaceId, String)) -> Self {
        QueueKey { namespace, name }
    }
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The namespaces and the names of queues, as two lists for a statement.
fn columns(queues: &[QueueKey]) -> (Vec<NamespaceId>, Vec<&str>) {
    queues.iter().map(|queue| (queue.namespace, queue.name.as_str())).unzip()
}

#[derive(QueryableByName)]
struct QueueRow {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = Text)]
    queue: String,
}

/// Returns the queues that have an entry at or behind the position (rank and seq) given for each.
pub(crate) async fn find_busy_queues(
    conn: &mut AsyncPgConnection,
    queues: &[QueueKey],
    from: &[(i16, i64)],
) -> QueryResult<Vec<QueueKey>> {
    let (namespaces, names) = columns(queues);
    let rows: Vec<QueueRow> = statement!("find_busy_queues")
        .query()
        .bind::<Array<Integer>, _>(namespaces)
        .bind::<Array<Text>, _>(names)
        .bind::<Array<SmallInt>, _>(from.iter().map(|from| from.0).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(from.iter().map(|from| from.1).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(rows.into_iter().map(|row| QueueKey { namespace: row.namespace_id, name: row.queue }).collect())
}

/// The first entry of a queue.
#[derive(Debug, QueryableByName)]
pub struct QueueHead {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = Text)]
    queue: String,
    /// The negated priority.
    #[diesel(sql_type = SmallInt)]
    pub rank: i16,
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
}

impl QueueHead {
    pub fn queue(&self) -> QueueKey {
        QueueKey { namespace: self.namespace_id, name: self.queue.clone() }
    }
}

/// Returns the first entry of each of `queues`, read from the beginning instead of a low-water mark.
pub(crate) async fn find_heads_of_queues(
    conn: &mut AsyncPgConnection,
    queues: &[QueueKey],
) -> QueryResult<Vec<QueueHead>> {
    let (namespaces, names) = columns(queues);
    statement!("find_heads_of_queues")
        .query()
        .bind::<Array<Integer>, _>(namespaces)
        .bind::<Array<Text>, _>(names)
        .cached()
        .load(conn)
        .await
}
