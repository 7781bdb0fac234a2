//! Replay jobs: many dead letters are replayed, at a rate that protects their receivers.
//!
//! A job stores a filter of dead letters and a cursor. Each round replays a few dead letters and moves the
//! cursor in one transaction. If a server dies during a round, neither is recorded, and another server
//! continues from the cursor.

use diesel_async::AsyncPgConnection;

use crate::domain::dead_letter::ReplayConfig;
use crate::domain::ids::DeliveryId;
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::lists::dead_letters::{DeadLetterFilter, count_dead_letters, last_dead_letter_id, list_dead_letters};
use crate::store::lists::pages::Page;
use crate::store::tables::replay_jobs::{
    NewReplayJob, Progress, ReplayJobRow, cancel_replay_job, get_replay_job, insert_replay_job, next_replay_in,
    save_replay_progress, take_replay_job,
};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::operate::replays::{ReplayOrder, replay_many};
use crate::engine::sweep::SweepOutcome;
use crate::engine::{Engine, transaction};

/// The number of dead letters that one transaction may replay.
const MAX_PER_ROUND: f64 = 100.0;

/// The number of rounds per second over which the rate of a job is spread, to avoid bursts.
const ROUNDS_PER_SECOND: f64 = 10.0;

/// Which dead letters to replay, and how.
#[derive(Debug, Clone)]
pub struct BulkReplay {
    /// Selects from the dead letters that have not been replayed yet.
    pub filter: DeadLetterFilter,
    pub config: ReplayConfig,
    pub rate_per_second: f64,
}

impl Engine {
    /// Returns the number of dead letters that a replay would include, and whether the number is exact.
    /// The scan reads a bounded number of rows and may not see all of them.
    pub async fn count_replayable(&self, scope: &Scope, filter: DeadLetterFilter) -> Result<(i64, bool), Error> {
        let mut conn = self.database().connection().await?;
        let (_, matched, is_exact) = self.count_open(&mut conn, scope, filter).await?;
        Ok((matched, is_exact))
    }

    /// Stores a replay job, which is worked off in the background.
    pub async fn start_replay(&self, scope: Scope, replay: BulkReplay) -> Result<ReplayJobRow, Error> {
        let filter = RawJson::of(&replay.filter).map_err(|error| Error::Internal(error.to_string()))?;
        let engine = self.clone();
        self.detached(async move {
            transaction!(engine, |conn| {
                let (until_id, matched, _) = engine.count_open(conn, &scope, replay.filter.clone()).await?;
                let new = NewReplayJob {
                    filter: filter.clone(),
                    config: replay.config,
                    rate_per_second: replay.rate_per_second,
                    requested_by: scope.actor.clone().unwrap_or_default(),
                    matched,
                    until_id,
                };
                Ok(insert_replay_job(conn, &scope, &new).await?)
            })
        })
        .await
    }

    /// Cancels a replay job. Dead letters that were replayed already stay replayed.
    pub async fn cancel_replay(&self, scope: Scope, id: i64) -> Result<ReplayJobRow, Error> {
        let engine = self.clone();
        self.detached(async move {
            transaction!(engine, |conn| {
                cancel_replay_job(conn, &scope, id).await?;
                get_replay_job(conn, &scope, id).await?.ok_or(Error::ReplayNotFound(id))
            })
        })
        .await
    }

    /// Replays the next dead letters of one job that is due.
    pub async fn work_off_replays(&self) -> Result<SweepOutcome, Error> {
        let worked_off = transaction!(self, |conn| {
            let Some(job) = take_replay_job(conn, self.now()).await? else { return Ok(None) };
            work_off(conn, self, &job).await.map(Some)
        })?;
        if let Some((count, applied)) = worked_off {
            self.notify_after_commit(&applied);
            return Ok(SweepOutcome { count, more: true, next_in: None });
        }
        let mut conn = self.database().connection().await?;
        Ok(SweepOutcome { count: 0, more: false, next_in: next_replay_in(&mut conn, self.now()).await? })
    }

    /// Returns the id of the last dead letter, the number of matching ones that have not been replayed,
    /// and whether that number is exact.
    async fn count_open(
        &self,
        conn: &mut AsyncPgConnection,
        scope: &Scope,
        filter: DeadLetterFilter,
    ) -> Result<(i64, i64, bool), Error> {
        let until = last_dead_letter_id(conn).await?;
        let scan = self.settings().list_scan_rows;
        let page = Page { descending: false, after: None, limit: 1, scan };
        let open = DeadLetterFilter { replayed: Some(false), ..filter };
        let (matched, is_exact) = count_dead_letters(conn, scope, &open, page).await?;
        Ok((until, matched, is_exact))
    }
}

/// Works off one round of a job. The job must be locked.
async fn work_off(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    job: &ReplayJobRow,
) -> Result<(usize, Applied), Error> {
    let unreadable = || Error::Internal(format!("replay {} cannot be read", job.id));
    let filter: DeadLetterFilter = serde_json::from_str(job.filter.0.as_str()).map_err(|_| unreadable())?;
    let filter = DeadLetterFilter { replayed: Some(false), ..filter };
    let limit = (job.rate_per_second / ROUNDS_PER_SECOND).ceil().clamp(1.0, MAX_PER_ROUND) as i64;
    let scan = engine.settings().list_scan_rows;
    let page = Page { descending: false, after: Some(job.last_id), limit, scan };
    let scope = Scope { actor: job.requested_by.clone(), ..engine.scope() };
    let (mut letters, next) = list_dead_letters(conn, &scope, &filter, page).await?;
    letters.retain(|letter| letter.id <= job.until_id);
    let next = next.filter(|next| *next < job.until_id);
    let ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
    let deliveries: Vec<DeliveryId> = letters.iter().map(|letter| letter.delivery_id).collect();
    let mut changes = ChangeSet::load(conn, &scope, &deliveries).await?;
    let (replayed, skipped) = replay_many(conn, &scope, &mut changes, &ids, &order_of(job)).await?;
    let applied = changes.apply(conn).await?;
    let last_id = next.or(ids.last().copied()).unwrap_or(job.last_id);
    let progress = Progress { replayed, skipped, last_id, is_done: next.is_none() };
    save_replay_progress(conn, engine.now(), job.id, progress).await?;
    Ok((replayed as usize, applied))
}

fn order_of(job: &ReplayJobRow) -> ReplayOrder {
    ReplayOrder { config: ReplayConfig::parse(&job.config).unwrap_or_default(), payload: None, new_webhook_id: false }
}
