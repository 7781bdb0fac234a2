//! `ready`: what can be claimed now.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Integer, Text};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::cached::CachedExt;

/// The queue that serves a tag.
pub fn queue_of_tag(tag: &str) -> String {
    format!("t:{tag}")
}

#[derive(QueryableByName)]
struct QueueRow {
    #[diesel(sql_type = Text)]
    queue: String,
}

/// Which of these queues hold anything.
pub async fn find_busy_queues(
    conn: &mut AsyncPgConnection,
    namespace_id: i32,
    queues: &[String],
) -> QueryResult<Vec<String>> {
    let rows: Vec<QueueRow> = sql_query(
        "SELECT q.queue FROM unnest($2) AS q(queue) WHERE EXISTS \
         (SELECT 1 FROM waybill.ready r WHERE r.namespace_id = $1 AND r.queue = q.queue COLLATE \"C\")",
    )
    .bind::<Integer, _>(namespace_id)
    .bind::<Array<Text>, _>(queues)
    .cached()
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.queue).collect())
}
