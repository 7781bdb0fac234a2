//! The table `ready`: the queues of deliveries that can be claimed now.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, SmallInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::SubscriptionId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// Returns the queue of a tag.
pub(crate) fn queue_of_tag(tag: &str) -> String {
    format!("t:{tag}")
}

/// Returns the queue of a subscription's pushes.
pub(crate) fn queue_of_subscription(id: SubscriptionId) -> String {
    format!("s:{id}")
}

/// Returns the subscription to which a queue belongs, or `None` if it is the queue of a tag.
pub(crate) fn subscription_of_queue(queue: &str) -> Option<SubscriptionId> {
    queue.strip_prefix("s:")?.parse().ok()
}

#[derive(QueryableByName)]
struct QueueRow {
    #[diesel(sql_type = Text)]
    queue: String,
}

/// Returns the queues that have an entry at or behind the position (rank and seq) given for each.
pub(crate) async fn find_busy_queues(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    queues: &[String],
    from: &[(i16, i64)],
) -> QueryResult<Vec<String>> {
    let rows: Vec<QueueRow> = statement!("find_busy_queues")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(queues)
        .bind::<Array<SmallInt>, _>(from.iter().map(|from| from.0).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(from.iter().map(|from| from.1).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(rows.into_iter().map(|row| row.queue).collect())
}

/// The first entry of a queue.
#[derive(Debug, QueryableByName)]
pub struct QueueHead {
    #[diesel(sql_type = Text)]
    pub queue: String,
    /// The negated priority.
    #[diesel(sql_type = SmallInt)]
    pub rank: i16,
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
}

/// Returns the first entry of each of `queues`, read from the beginning instead of a low-water mark.
pub(crate) async fn find_heads_of_queues(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    queues: &[String],
) -> QueryResult<Vec<QueueHead>> {
    statement!("find_heads_of_queues")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(queues)
        .cached()
        .load(conn)
        .await
}
