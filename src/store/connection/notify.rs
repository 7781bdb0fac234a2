//! Notifications between servers, by PostgreSQL's `NOTIFY` and `LISTEN`.

use diesel::sql_types::Text;
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

const CHANNEL: &str = "waybill_ready";

/// Sends `text` to all servers that listen.
pub(crate) async fn notify(conn: &mut AsyncPgConnection, text: &str) -> QueryResult<()> {
    sql_query("SELECT pg_notify($1, $2)").bind::<Text, _>(CHANNEL).bind::<Text, _>(text).execute(conn).await.map(drop)
}

/// Makes the connection receive notifications from now on.
pub(crate) async fn listen(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    conn.batch_execute(&format!("LISTEN {CHANNEL}")).await
}
