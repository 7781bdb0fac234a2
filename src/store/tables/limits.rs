//! What limits need: which there are, how many servers share them, and how much there is of what they limit.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::NamespaceId;
use crate::domain::namespace::NamespaceSettings;
use crate::domain::publish_limits::NamespaceLimits;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::namespaces::{NamespaceRef, get_namespace};

/// All limits.
#[derive(Debug, Default)]
pub(crate) struct LoadedLimits {
    pub namespaces: BTreeMap<NamespaceId, NamespaceLimits>,
    /// Whether there are keys with limits.
    pub has_keys: bool,
}

#[derive(QueryableByName)]
struct LimitRow {
    #[diesel(sql_type = Nullable<Integer>)]
    namespace_id: Option<NamespaceId>,
    #[diesel(sql_type = Nullable<Json>)]
    limits: Option<JsonColumn>,
}

/// Returns all limits of namespaces.
pub(crate) async fn load_limits(conn: &mut AsyncPgConnection) -> QueryResult<LoadedLimits> {
    let rows: Vec<LimitRow> = statement!("load_limits").query().cached().load(conn).await?;
    let mut loaded = LoadedLimits::default();
    for LimitRow { namespace_id, limits } in rows {
        match namespace_id {
            Some(namespace) => drop(loaded.namespaces.insert(namespace, read_limits(limits.as_ref()))),
            None => loaded.has_keys = true,
        }
    }
    Ok(loaded)
}

/// Returns stored limits. What this version cannot read is not limited.
pub(crate) fn read_limits(limits: Option<&JsonColumn>) -> NamespaceLimits {
    limits.and_then(|limits| serde_json::from_str(limits.0.as_str()).ok()).unwrap_or_default()
}

/// Returns the limits of a namespace that this transaction sees.
pub(crate) async fn limits_of(conn: &mut AsyncPgConnection, namespace: NamespaceId) -> QueryResult<NamespaceLimits> {
    let row = get_namespace(conn, &NamespaceRef::Id(namespace)).await?;
    let settings = row.and_then(|row| serde_json::from_str::<NamespaceSettings>(row.settings.0.as_str()).ok());
    Ok(settings.and_then(|settings| settings.limits).unwrap_or_default())
}

#[derive(QueryableByName)]
struct ServerCount {
    #[diesel(sql_type = BigInt)]
    servers: i64,
}

/// Notes that a server is alive, and returns the number of those that were in the last `alive_seconds`.
pub(crate) async fn note_server(
    conn: &mut AsyncPgConnection,
    instance: &str,
    now: Option<DateTime<Utc>>,
    alive_seconds: f64,
    kept_seconds: f64,
) -> QueryResult<i64> {
    let row: ServerCount = statement!("note_server")
        .query()
        .bind::<Text, _>(instance)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Double, _>(alive_seconds)
        .bind::<Double, _>(kept_seconds)
        .cached()
        .load_one(conn)
        .await?;
    Ok(row.servers)
}

#[derive(QueryableByName)]
struct WaitingRow {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    waiting: i64,
}

/// Returns the number of waiting events of namespaces, each with its limit. It is not counted much further than that.
pub(crate) async fn count_waiting_events(
    conn: &mut AsyncPgConnection,
    limited: &[(NamespaceId, i64)],
) -> QueryResult<Vec<(NamespaceId, i64)>> {
    let rows: Vec<WaitingRow> = statement!("count_waiting_events")
        .query()
        .bind::<Array<Integer>, _>(limited.iter().map(|(namespace, _)| *namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(limited.iter().map(|(_, limit)| *limit).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(rows.into_iter().map(|row| (row.namespace_id, row.waiting)).collect())
}

/// The payloads of some events.
#[derive(Debug, QueryableByName)]
pub(crate) struct MeasuredPayloads {
    #[diesel(sql_type = BigInt)]
    pub events: i64,
    #[diesel(sql_type = BigInt)]
    pub last_id: i64,
    #[diesel(sql_type = BigInt)]
    pub bytes: i64,
}

/// Adds up the payloads of the next events of a namespace, at most `max_rows`.
pub(crate) async fn measure_payloads(
    conn: &mut AsyncPgConnection,
    namespace: NamespaceId,
    after: i64,
    max_rows: i64,
) -> QueryResult<MeasuredPayloads> {
    let query = statement!("measure_payloads").query().bind::<Integer, _>(namespace);
    query.bind::<BigInt, _>(after).bind::<BigInt, _>(max_rows).cached().load_one(conn).await
}
