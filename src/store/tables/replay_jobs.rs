//! Replay jobs: replays of many dead letters, and their progress.

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

/// The current state of a replay. The migration describes the columns.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(table_name = replay_jobs, check_for_backend(diesel::pg::Pg))]
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

/// A replay to store.
#[derive(Debug, Clone)]
pub(crate) struct NewReplayJob {
    /// The filter that selects the dead letters, as JSON.
    pub filter: RawJson,
    pub config: ReplayConfig,
    pub rate_per_second: f64,
    pub requested_by: String,
    /// The number of matching dead letters when the replay was requested. It may be an estimate.
    pub matched: i64,
    /// The highest id to replay. Later dead letters are not included.
    pub until_id: i64,
}

/// Stores a replay.
pub(crate) async fn insert_replay_job(
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

/// Returns a replay, or `None` if there is none.
pub(crate) async fn get_replay_job(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: i64,
) -> QueryResult<Option<ReplayJobRow>> {
    replay_jobs::table
        .filter(replay_jobs::namespace_id.eq(scope.namespace))
        .filter(replay_jobs::id.eq(id))
        .select(ReplayJobRow::as_select())
        .first(conn)
        .await
        .optional()
}

/// Returns a page of replays in the order of ids.
pub(crate) async fn list_replay_jobs(
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

/// Locks a running replay that is due and that no other server is working on, until the transaction ends.
pub(crate) async fn take_replay_job(
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

/// The result of one round of a replay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// The number of dead letters that were replayed in the round.
    pub replayed: i64,
    /// The number of dead letters that could not be replayed.
    pub skipped: i64,
    /// The last dead letter that was processed.
    pub last_id: i64,
    /// Whether the replay is complete.
    pub is_done: bool,
}

/// Saves the result of a round, and sets the time of the next round according to the rate. A round that
/// began late is made up for by at most one second.
pub(crate) async fn save_replay_progress(
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

/// Cancels a running replay. Dead letters that have been replayed stay replayed.
pub(crate) async fn cancel_replay_job(conn: &mut AsyncPgConnection, scope: &Scope, id: i64) -> QueryResult<()> {
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

/// Returns the seconds until the next round of any replay, or `None` if no replay is running.
pub(crate) async fn next_replay_in(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
) -> QueryResult<Option<f64>> {
    let row: Seconds =
        statement!("next_replay_in").query().bind::<Nullable<Timestamptz>, _>(now).cached().get_result(conn).await?;
    Ok(row.seconds)
}
