//! Sessions: secrets of API keys that browsers hold. They are rows of the table of secrets, and are looked up as these
//! are ([`super::api_keys::load_keys`]).

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::api_key::{KeyHash, SessionSecret};
use crate::domain::ids::KeyId;
use crate::domain::scope::Scope;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::api_keys::Count;

/// Makes changes of keys take turns, and leaves their generation as it is.
pub(crate) async fn lock_key_catalog(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    statement!("lock_key_catalog").query().execute(conn).await.map(drop)
}

/// Deletes the sessions of a key that have ended, and of those that are good all but the `keep` newest. Returns the
/// number of good ones that were deleted: if there are any, the catalog needs another generation.
pub(crate) async fn delete_old_sessions(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    key: KeyId,
    keep: i64,
) -> QueryResult<i64> {
    let row: Count = statement!("delete_old_sessions")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<BigInt, _>(key)
        .bind::<BigInt, _>(keep)
        .load_one(conn)
        .await?;
    Ok(row.count)
}

#[derive(QueryableByName)]
struct SessionEnd {
    #[diesel(sql_type = Timestamptz)]
    expires_at: DateTime<Utc>,
}

/// Gives a key a session, which ends after `seconds`, or at `until` if that is sooner. Returns when it ends. Nobody
/// has looked for it yet, so the catalog keeps its generation.
pub(crate) async fn insert_session(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    key: KeyId,
    secret: &SessionSecret,
    (seconds, until): (f64, Option<DateTime<Utc>>),
) -> QueryResult<DateTime<Utc>> {
    let row: SessionEnd = statement!("insert_session")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<BigInt, _>(key)
        .bind::<Binary, _>(secret.hash().0.as_slice())
        .bind::<Text, _>(SessionSecret::PREFIX)
        .bind::<Double, _>(seconds)
        .bind::<Nullable<Timestamptz>, _>(until)
        .load_one(conn)
        .await?;
    Ok(row.expires_at)
}

/// Ends a session.
pub(crate) async fn delete_session(conn: &mut AsyncPgConnection, session: KeyHash) -> QueryResult<()> {
    let query = statement!("delete_session").query().bind::<Binary, _>(session.0.as_slice());
    query.execute(conn).await.map(drop)
}
