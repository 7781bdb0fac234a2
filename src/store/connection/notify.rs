//! Notifications between servers, by PostgreSQL's `NOTIFY` and `LISTEN`.

use diesel::sql_types::{Array, Text};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

const CHANNEL: &str = "waybill_ready";

/// Sends `texts` to all servers that listen, with one commit.
pub(crate) async fn notify(conn: &mut AsyncPgConnection, texts: &[String]) -> QueryResult<()> {
    let query = sql_query("SELECT pg_notify($1, text) FROM unnest($2) AS text").bind::<Text, _>(CHANNEL);
    query.bind::<Array<Text>, _>(texts).execute(conn).await.map(drop)
}

/// Makes the connection receive notifications from now on.
pub(crate) async fn listen(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    conn.batch_execute(&format!("LISTEN {CHANNEL}")).await
}
