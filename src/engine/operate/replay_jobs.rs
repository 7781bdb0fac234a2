//! Many dead letters are sent again, at a pace that their receivers can bear.
//!
//! A job knows which dead letters are meant and behind which of them to go on. Both that and the
//! deliveries are written in one transaction, so that a server which dies in between has done
//! neither, and another goes on from there.

use diesel_async::AsyncPgConnection;

use crate::domain::dead_letter::ReplayConfig;
use crate::domain::ids::DeliveryId;
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::lists::dead_letters::{
    DeadLetterFilter, Range, count_dead_letters, last_dead_letter_id, list_dead_letters,
};
use crate::store::tables::replay_jobs::{
    NewReplayJob, Progress, ReplayJobRow, cancel_replay_job, get_replay_job, insert_replay_job, next_replay_in,
    save_replay_progress, take_replay_job,
};

use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::operate::replays::{ReplayOrder, replay_many};
use crate::engine::sweep::SweepOutcome;
use crate::engine::{Engine, transaction};

/// Dead letters per transaction.
const MAX_PER_ROUND: f64 = 100.0;

/// The rate is spread over so many rounds per second: what is sent trickles, and does not gush.
const ROUNDS_PER_SECOND: f64 = 10.0;

/// Which dead letters are to be sent again, and how.
#[derive(Debug, Clone)]
pub struct BulkReplay {
    /// Which: of those that nobody has sent again yet.
    pub filter: DeadLetterFilter,
    /// By which configuration.
    pub config: ReplayConfig,
    /// So many per second.
    pub rate_per_second: f64,
}

impl Engine {
    /// How many dead letters are meant, as far as a bounded number of rows tells, and whether that
    /// is all of them.
    pub async fn count_replayable(&self, scope: &Scope, filter: DeadLetterFilter) -> Result<(i64, bool), Error> {
        let mut conn = self.database().connection().await?;
        let (_, matched, is_exact) = self.count_open(&mut conn, scope, filter).await?;
        Ok((matched, is_exact))
    }

    /// Takes a replay of many on; it is worked off in the background.
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

    /// Stops a replay of many. What is over stays as it is.
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

    /// Sends the next few dead letters of a replay whose time has come again.
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

    async fn count_open(
        &self,
        conn: &mut AsyncPgConnection,
        scope: &Scope,
        filter: DeadLetterFilter,
    ) -> Result<(i64, i64, bool), Error> {
        let until = last_dead_letter_id(conn).await?;
        let range = Range { after: 0, until, limit: 1, scan: self.settings().list_scan_rows };
        let open = DeadLetterFilter { replayed: Some(false), ..filter };
        let (matched, is_exact) = count_dead_letters(conn, scope, &open, range).await?;
        Ok((until, matched, is_exact))
    }
}

/// One round of one job, which is locked.
async fn work_off(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    job: &ReplayJobRow,
) -> Result<(usize, Applied), Error> {
    let unreadable = || Error::Internal(format!("replay {} cannot be read", job.id));
    let filter: DeadLetterFilter = serde_json::from_str(job.filter.0.as_str()).map_err(|_| unreadable())?;
    let filter = DeadLetterFilter { replayed: Some(false), ..filter };
    let limit = (job.rate_per_second / ROUNDS_PER_SECOND).ceil().clamp(1.0, MAX_PER_ROUND) as i64;
    let range = Range { after: job.last_id, until: job.until_id, limit, scan: engine.settings().list_scan_rows };
    let scope = Scope { actor: job.requested_by.clone(), ..engine.scope() };
    let (letters, next) = list_dead_letters(conn, &scope, &filter, range).await?;
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
