//! Reads the end of the event log, of all namespaces at once.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use crate::domain::ids::NamespaceId;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::event_log::LogEntry;

/// An entry and the namespace that it belongs to.
#[derive(Debug)]
pub struct TailEntry {
    pub namespace: NamespaceId,
    pub entry: LogEntry,
}

impl QueryableByName<Pg> for TailEntry {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let namespace = NamedRow::get::<Integer, _>(row, "namespace_id")?;
        Ok(TailEntry { namespace, entry: LogEntry::build(row)? })
    }
}

/// Returns the entries with ids above `above`, up to `up_to`, in the order of ids; fewer if their error messages have
/// more than `max_bytes`. Partitions that end before `since` are not read. Must run in a transaction, since it changes
/// the planner's settings.
pub async fn read_log_tail(
    conn: &mut AsyncPgConnection,
    above: i64,
    up_to: i64,
    since: Option<DateTime<Utc>>,
    max_bytes: i64,
) -> QueryResult<Vec<TailEntry>> {
    conn.batch_execute("SET LOCAL enable_bitmapscan = on").await?;
    statement!("read_log_tail")
        .query()
        .bind::<BigInt, _>(above)
        .bind::<BigInt, _>(up_to)
        .bind::<Nullable<Timestamptz>, _>(since)
        .bind::<BigInt, _>(max_bytes)
        .cached()
        .load(conn)
        .await
}
