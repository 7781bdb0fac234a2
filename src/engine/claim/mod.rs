//! `claim_deliveries`: work is handed out under a lease.
//!
//! The wait happens in the caller's own future, so that a caller who goes away stops waiting;
//! each look for work goes through the claim batcher, where all that ask at the same time are
//! served together, and where a caller who goes away in the middle of it does not cut a
//! transaction in two. What was claimed travels as a [`ClaimedBatch`], and whoever drops one
//! without having delivered it gives the work back.

mod claimed_batch;

use std::collections::BTreeMap;
use std::time::Duration;

use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::ids::NamespaceId;
use crate::domain::limits;
use crate::domain::tags::Tags;
use crate::error::Error;
use crate::store::tables::claim_requests::{Remembered, RequestKey, load_standing, lock_request, remember_claim};
use crate::store::tables::claims::{ClaimQuery, Claimed, ClaimedEvent, claim_deliveries};
use crate::store::tables::deliveries::EarliestTimes;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::LARGE_PAYLOAD;
use crate::store::tables::ready::queue_of_tag;

use crate::engine::batching::Answers;
use crate::engine::batching::deadline::{WithDeadline, limit_statements, too_late};
use crate::engine::claim::claimed_batch::{Ask, Undo};
pub use crate::engine::claim::claimed_batch::{ClaimedBatch, SentClaim};
use crate::engine::waiting::hub::{Queues, ScanResult};
use crate::engine::waiting::low_water_marks::{QueuePosition, QueueScan};
use crate::engine::{Engine, statement, transaction};

/// How many entries more than needed a claim looks at, so that work which others are just taking
/// does not hide what is behind it.
const SLACK: i64 = 3;

/// The same where nothing could be had.
const WIDE_SLACK: i64 = 500;

/// How often a claim looks where nothing can be had although work is there.
const LOOKS: usize = 5;

/// Bytes of payloads that one claim hands out at most, if that is more than one event.
const CLAIM_BYTES: usize = 16 * 1024 * 1024;

/// Between two looks of a worker that waits while the database is away or the server overloaded.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// What a worker asks for.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Any of these.
    pub tags: Tags,
    /// Who asks.
    pub worker_id: String,
    /// How many at most.
    pub max: usize,
    /// How long to wait for the first.
    pub wait: Duration,
    /// For how long.
    pub lease_seconds: i32,
    /// The worker's name for this claim, if it may ask again.
    pub request_id: Option<String>,
}

/// One worker in a batched claim.
#[derive(Debug, Clone)]
pub struct ClaimCall {
    queues: Queues,
    worker_id: String,
    max: usize,
    lease_seconds: i32,
    /// Its number in the waiting room, if it waits.
    waiter: Option<u64>,
}

impl Engine {
    /// Claims work, waiting for it if asked to. An empty batch: there was none.
    pub async fn claim_deliveries(&self, request: ClaimRequest) -> Result<ClaimedBatch, Error> {
        self.worker_sightings().note(&request.worker_id, Some(request.tags.as_slice()));
        let mut claimer = ClaimCall {
            queues: request.tags.as_slice().iter().map(|tag| queue_of_tag(tag)).collect(),
            worker_id: request.worker_id,
            max: request.max,
            lease_seconds: request.lease_seconds,
            waiter: None,
        };
        let request_id = request.request_id.as_deref();
        if request.wait.is_zero() {
            return self.look_once(&claimer, request_id).await;
        }
        let deadline = Instant::now() + request.wait;
        let waiter = self.hub().enter(claimer.queues.clone(), claimer.max)?;
        claimer.waiter = Some(waiter.number());
        let mut has_waited = false;
        loop {
            let mut look_again_at = deadline;
            // What was claimed under this request id may be there although the queues are empty.
            if waiter.should_look() || request_id.is_some() {
                match self.look_once(&claimer, request_id).await {
                    Ok(batch) if !batch.events().is_empty() => return Ok(batch),
                    // What is there is locked. Whoever locked it may leave it where it is.
                    Ok(_) if waiter.should_look() => look_again_at = deadline.min(Instant::now() + LOOK_PAUSE),
                    Ok(_) => {}
                    // Who waits already outlives a restart of the database.
                    Err(Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Overloaded) if has_waited => {
                        look_again_at = deadline.min(Instant::now() + LOOK_PAUSE)
                    }
                    Err(error) => return Err(error),
                }
            }
            if self.hub().is_closed() {
                return Ok(ClaimedBatch::empty());
            }
            let woken = tokio::time::timeout_at(look_again_at, waiter.woken()).await.is_ok();
            if self.hub().is_closed() || (!woken && Instant::now() >= deadline) {
                return Ok(ClaimedBatch::empty());
            }
            has_waited = true;
        }
    }

    async fn look_once(&self, claimer: &ClaimCall, request_id: Option<&str>) -> Result<ClaimedBatch, Error> {
        let Some(request_id) = request_id.map(str::to_owned) else {
            return self.0.batchers.claim.call(claimer.clone(), claimer.max).await;
        };
        let (engine, claimer) = (self.clone(), claimer.clone());
        self.detached(async move {
            let (events, undo) = engine.claim_by_request(&claimer, &request_id).await?;
            Ok(ClaimedBatch::new(engine, events, undo))
        })
        .await
    }

    /// Claims for many workers at once: one statement for all that ask for the same queues.
    pub(crate) async fn run_claim_batch(&self, claimers: Vec<WithDeadline<ClaimCall>>) -> Answers<ClaimedBatch> {
        let mut groups: BTreeMap<Queues, Vec<usize>> = BTreeMap::new();
        for (index, claimer) in claimers.iter().enumerate() {
            groups.entry(claimer.call.queues.clone()).or_default().push(index);
        }
        let mut answers: Vec<Option<Result<ClaimedBatch, Error>>> = claimers.iter().map(|_| None).collect();
        for (queues, mut members) in groups {
            members.retain(|index| claimers[*index].time.send());
            if members.is_empty() {
                continue;
            }
            let sent: Vec<&WithDeadline<ClaimCall>> = members.iter().map(|index| &claimers[*index]).collect();
            limit_statements(&sent);
            let asking: Vec<&ClaimCall> = sent.iter().map(|timed| &timed.call).collect();
            for (index, share) in members.into_iter().zip(self.claim_for(&queues, &asking).await) {
                answers[index] = Some(share.map(|events| ClaimedBatch::new(self.clone(), events, Undo::AtOnce)));
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(too_late()))).collect()
    }

    /// Claims for workers that ask for the same queues, unless all of them wait and an earlier
    /// batch has found out since they came that there is nothing.
    async fn claim_for(&self, queues: &Queues, claimers: &[&ClaimCall]) -> Vec<Result<Vec<EventRow>, Error>> {
        let waiters: Vec<u64> = claimers.iter().filter_map(|claimer| claimer.waiter).collect();
        let all_wait = waiters.len() == claimers.len();
        let look = self.hub().begin_scan(queues.clone(), waiters);
        if all_wait && self.hub().knows_to_be_empty(queues) {
            look.finish(&ScanResult::default());
            return claimers.iter().map(|_| Ok(Vec::new())).collect();
        }
        let mut shares: Vec<Result<Vec<EventRow>, Error>> = claimers.iter().map(|_| Ok(Vec::new())).collect();
        let mut findings = ScanResult::default();
        let mut unserved: Vec<usize> = (0..claimers.len()).collect();
        loop {
            let asking: Vec<&ClaimCall> = unserved.iter().map(|index| claimers[*index]).collect();
            let claimed = match self.claim_within_reach(queues, &asking).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    unserved.into_iter().for_each(|index| shares[index] = Err(error.for_another()));
                    return shares;
                }
            };
            findings = ScanResult { found: findings.found || !claimed.events.is_empty(), left: more_behind(&claimed) };
            let is_full = is_full(&claimed);
            for (index, share) in unserved.iter().zip(share_out(claimed, &asking)) {
                shares[*index] = Ok(share);
            }
            unserved.retain(|index| shares[*index].as_ref().is_ok_and(Vec::is_empty));
            if !is_full || unserved.is_empty() {
                look.finish(&findings);
                return shares;
            }
        }
    }

    /// Claims once, and looks further if there is work that could not be reached: others are just
    /// taking it, or it has expired and stands in the way until it is swept. First come, first
    /// served: slots are in the order of the claimers.
    async fn claim_within_reach(&self, queues: &Queues, claimers: &[&ClaimCall]) -> Result<Claimed, Error> {
        let mut is_swept = false;
        let mut looks = 0;
        loop {
            looks += 1;
            let slack = if looks == 1 { SLACK } else { WIDE_SLACK };
            let look = self.marks().scan(queues);
            let claimed = statement!(self, |conn| claim(conn, self, &look, queues, claimers, slack).await)?;
            self.metrics().events_claimed.inc_by(claimed.events.len() as u64);
            self.note_claim(&look, &claimed);
            if !claimed.is_out_of_reach() || is_swept || looks == LOOKS {
                return Ok(claimed);
            }
            is_swept = !self.expire_deliveries().await?.more;
        }
    }

    /// Claims on behalf of a request that may be repeated.
    async fn claim_by_request(&self, claimer: &ClaimCall, request_id: &str) -> Result<(Vec<EventRow>, Undo), Error> {
        let hub_look = self.hub().begin_scan(claimer.queues.clone(), claimer.waiter.into_iter().collect());
        let mut is_swept = false;
        let mut looks = 0;
        loop {
            looks += 1;
            let slack = if looks == 1 { SLACK } else { WIDE_SLACK };
            let look = self.marks().scan(&claimer.queues);
            let asked = self.claim_or_repeat(claimer, &look, request_id, slack).await?;
            let (claimed, undo) = match asked {
                Asked::Again(standing) => return Ok((standing, Undo::Never)),
                Asked::First(claimed, undo) => (claimed, undo),
            };
            self.metrics().events_claimed.inc_by(claimed.events.len() as u64);
            self.note_claim(&look, &claimed);
            if !claimed.is_out_of_reach() || is_swept || looks == LOOKS {
                hub_look.finish(&ScanResult { found: !claimed.events.is_empty(), left: more_behind(&claimed) });
                return Ok((claimed.events.into_iter().map(|event| event.row).collect(), undo));
            }
            is_swept = !self.expire_deliveries().await?.more;
        }
    }

    /// Call it after the commit.
    pub(crate) fn note_claim(&self, look: &QueueScan<'_>, claimed: &Claimed) {
        for event in &claimed.events {
            let (queue, rank, seq) = &event.next;
            look.raise(queue, QueuePosition { rank: *rank, seq: *seq });
        }
        // Leases are looked at some time after the claim, and never before it.
        let look_at = claimed.events.first().map(|event| event.row.work.updated_at);
        if look_at.is_some() {
            self.database().note_success();
        }
        self.due_times().wait_for(&EarliestTimes { look_at, ..EarliestTimes::default() });
    }

    async fn claim_or_repeat(
        &self,
        claimer: &ClaimCall,
        look: &QueueScan<'_>,
        request_id: &str,
        slack: i64,
    ) -> Result<Asked, Error> {
        let key = RequestKey { namespace: NamespaceId::DEFAULT, worker_id: &claimer.worker_id, request_id };
        transaction!(self, |conn| {
            let locked = lock_request(conn, key).await?;
            let standing = load_standing(conn, &locked.remembered, self.now()).await?;
            if !standing.is_empty() {
                return Ok(Asked::Again(standing));
            }
            let claimed = claim(conn, self, look, &claimer.queues, &[claimer], slack).await?;
            if claimed.events.is_empty() {
                return Ok(Asked::First(claimed, Undo::Never));
            }
            let given = Remembered {
                delivery_ids: claimed.events.iter().map(|event| event.delivery_id).collect(),
                lease_ids: claimed.events.iter().map(|event| event.row.work.lease_id).collect(),
            };
            remember_claim(conn, key, &given, self.now()).await?;
            let ask =
                Ask { worker_id: claimer.worker_id.clone(), request_id: request_id.to_owned(), number: locked.asks };
            Ok(Asked::First(claimed, Undo::IfLast(ask)))
        })
    }
}

/// What a request that may be asked again was given.
enum Asked {
    First(Claimed, Undo),
    Again(Vec<EventRow>),
}

async fn claim(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    look: &QueueScan<'_>,
    queues: &[String],
    claimers: &[&ClaimCall],
    slack: i64,
) -> Result<Claimed, Error> {
    let slots = || claimers.iter().flat_map(|claimer| std::iter::repeat_n(claimer, claimer.max));
    let worker_ids: Vec<&str> = slots().map(|claimer| claimer.worker_id.as_str()).collect();
    let lease_seconds: Vec<i32> = slots().map(|claimer| claimer.lease_seconds).collect();
    let from: Vec<(i16, i64)> = look.from.iter().map(|mark| (mark.rank, mark.seq)).collect();
    let query = ClaimQuery {
        scope: engine.scope(),
        queues,
        from: &from,
        windows: &vec![worker_ids.len() as i64 + slack; queues.len()],
        worker_ids: &worker_ids,
        lease_seconds: &lease_seconds,
        queue_leases: None,
        subscriptions: None,
        max_bytes: CLAIM_BYTES as i64,
    };
    Ok(claim_deliveries(conn, &query).await?)
}

/// Returns what was left in queues. Where all that a claim looks at beyond what it needs was left,
/// there may be much more behind it: then as many again as were claimed may come.
fn more_behind(claimed: &Claimed) -> Vec<(String, usize)> {
    let more = |entries: usize| if entries < SLACK as usize { entries } else { entries + claimed.events.len() };
    claimed.left.iter().map(|(queue, entries)| (queue.clone(), more(*entries))).collect()
}

/// Returns whether more payloads might not have fitted into the claim.
fn is_full(claimed: &Claimed) -> bool {
    let bytes = |event: &ClaimedEvent| {
        let payload = event.row.event.payload.as_ref().map_or(0, |payload| payload.0.as_str().len());
        payload.max(LARGE_PAYLOAD)
    };
    !claimed.left.is_empty() && claimed.events.iter().map(bytes).sum::<usize>() + limits::PAYLOAD_BYTES > CLAIM_BYTES
}

fn share_out(claimed: Claimed, claimers: &[&ClaimCall]) -> Vec<Vec<EventRow>> {
    let owner_of_slot: Vec<usize> =
        claimers.iter().enumerate().flat_map(|(index, claimer)| std::iter::repeat_n(index, claimer.max)).collect();
    let mut shares: Vec<Vec<EventRow>> = claimers.iter().map(|_| Vec::new()).collect();
    for event in claimed.events {
        shares[owner_of_slot[event.slot]].push(event.row);
    }
    shares
}
