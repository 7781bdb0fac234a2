//! Replays of many dead letters: what was asked for, and how far it got.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use diesel::sql_types::{BigInt, Bool, Double, Integer, Json, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::dead_letter::ReplayConfig;
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::schema::replay_jobs;

/// A replay, as it stands.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = replay_jobs, check_for_backend(diesel::pg::Pg))]
#[expect(missing_docs, reason = "the columns are described in the migration")]
pub struct ReplayJobRow {
    pub id: i64,
    pub status: String,
    pub filter: JsonColumn,
    pub config: String,
    pub rate_per_second: f64,
    pub requested_by: Option<String>,
    pub matched: i64,
    pub replayed: i64,
    pub skipped: i64,
    pub last_id: i64,
    pub until_id: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A replay that is asked for.
#[derive(Debug, Clone)]
pub struct NewReplayJob {
    /// Which dead letters are meant.
    pub filter: RawJson,
    /// By which configuration they are sent.
    pub config: ReplayConfig,
    /// So many per second.
    pub rate_per_second: f64,
    /// By whose word.
    pub requested_by: String,
    /// How many there seem to be.
    pub matched: i64,
    /// Those that come later are not meant.
    pub until_id: i64,
}

/// Takes a replay on.
pub async fn insert_replay_job(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    new: &NewReplayJob,
) -> QueryResult<ReplayJobRow> {
    statement!("insert_replay_job")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Json, _>(JsonColumn(new.filter.clone()))
        .bind::<Text, _>(new.config.as_str())
        .bind::<Double, _>(new.rate_per_second)
        .bind::<Text, _>(new.requested_by.as_str())
        .bind::<BigInt, _>(new.matched)
        .bind::<BigInt, _>(new.until_id)
        .get_result(conn)
        .await
}

/// A replay, if there is one.
pub async fn get_replay_job(conn: &mut AsyncPgConnection, scope: &Scope, id: i64) -> QueryResult<Option<ReplayJobRow>> {
    replay_jobs::table
        .filter(replay_jobs::namespace_id.eq(scope.namespace))
        .filter(replay_jobs::id.eq(id))
        .select(ReplayJobRow::as_select())
        .first(conn)
        .await
        .optional()
}

/// A page of replays, in the order of ids.
pub async fn list_replay_jobs(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    after: i64,
    limit: i64,
) -> QueryResult<Vec<ReplayJobRow>> {
    replay_jobs::table
        .filter(replay_jobs::namespace_id.eq(scope.namespace))
        .filter(replay_jobs::id.gt(after))
        .order(replay_jobs::id)
        .limit(limit)
        .select(ReplayJobRow::as_select())
        .load(conn)
        .await
}

/// Takes a running replay whose time has come, unless another server has it in hand: locked until
/// the transaction ends.
pub async fn take_replay_job(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
) -> QueryResult<Option<ReplayJobRow>> {
    statement!("take_replay_job")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .get_result(conn)
        .await
        .optional()
}

/// How far a replay got.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// So many more were sent again.
    pub replayed: i64,
    /// So many more could not be.
    pub skipped: i64,
    /// The last dead letter that was dealt with.
    pub last_id: i64,
    /// Whether that was all.
    pub is_done: bool,
}

/// Writes down how far a replay got, and when it goes on: what was sent is spread over its rate. A
/// round that came late is made up for, though not by more than a second's worth.
pub async fn save_progress(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    id: i64,
    progress: Progress,
) -> QueryResult<()> {
    statement!("save_replay_progress")
        .query()
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<BigInt, _>(progress.replayed)
        .bind::<BigInt, _>(progress.skipped)
        .bind::<BigInt, _>(progress.last_id)
        .bind::<Bool, _>(progress.is_done)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Stops a replay that is running. What was sent again stays so.
pub async fn cancel_replay_job(conn: &mut AsyncPgConnection, scope: &Scope, id: i64) -> QueryResult<()> {
    statement!("cancel_replay_job")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .execute(conn)
        .await
        .map(drop)
}

#[derive(QueryableByName)]
struct Seconds {
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
}

/// In how many seconds the next replay goes on, if any is running.
pub async fn next_replay_in(conn: &mut AsyncPgConnection, now: Option<DateTime<Utc>>) -> QueryResult<Option<f64>> {
    let row: Seconds =
        statement!("next_replay_in").query().bind::<Nullable<Timestamptz>, _>(now).cached().get_result(conn).await?;
    Ok(row.seconds)
}
