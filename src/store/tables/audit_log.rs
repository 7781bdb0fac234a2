//! Appends to the audit log.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::sql_types::{Array, BigInt, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::audit::AuditEntry;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// Appends an entry on behalf of a caller. Call this in the transaction of the change that it records.
pub async fn record_audit(conn: &mut AsyncPgConnection, scope: &Scope, entry: &AuditEntry) -> QueryResult<()> {
    record_all(conn, scope.now, &[(scope, entry)]).await
}

/// Appends entries, each on behalf of its own caller.
pub(crate) async fn record_all(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    entries: &[(&Scope, &AuditEntry)],
) -> QueryResult<()> {
    let scopes = || entries.iter().map(|(scope, _)| *scope);
    let all = || entries.iter().map(|(_, entry)| *entry);
    statement!("record_audit")
        .query()
        .bind::<Array<Integer>, _>(scopes().map(|scope| scope.namespace).collect::<Vec<_>>())
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Text>, _>(all().map(|entry| entry.action.as_str()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(scopes().map(|scope| scope.actor.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(all().map(|entry| entry.action.subject_kind()).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(all().map(|entry| entry.subject_id).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(scopes().map(|s| s.address.map(|ip| ip.to_string())).collect::<Vec<_>>())
        .bind::<Array<Json>, _>(all().map(AuditEntry::bounded_detail).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}
