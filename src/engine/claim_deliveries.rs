//! `claim_deliveries`: work is handed out under a lease.
//!
//! The wait happens in the caller's own future, so that a caller who goes away stops waiting;
//! each look for work goes through the claim lane, where all that ask at the same time are
//! served together, and where a caller who goes away in the middle of it does not cut a
//! transaction in two. What was claimed travels as a [`ClaimedBatch`], and whoever drops one
//! without having delivered it gives the work back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::tags::Tags;
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::claim_requests::{Remembered, RequestKey, load_standing, lock_request, remember_claim};
use crate::store::claims::{ClaimQuery, Claimed, claim_deliveries};
use crate::store::deliveries::FirstMoments;
use crate::store::events::EventRow;
use crate::store::ready::queue_of_tag;

pub use super::claimed_batch::ClaimedBatch;
use super::claimed_batch::{Ask, Undo};
use super::fusion::Answers;
use super::marks::{Look, Place};
use super::{Engine, transaction};

/// How much further than needed a claim looks, so that work which others are just taking
/// does not hide what is behind it: a little at first, and far if it has to look again.
const SLACK: [i64; 5] = [3, 500, 500, 500, 500];

/// Between two looks of a worker that waits while the database is away.
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

/// One worker in a fused claim.
#[derive(Debug, Clone)]
pub struct Claimer {
    queues: Arc<[String]>,
    worker_id: String,
    max: usize,
    lease_seconds: i32,
}

impl Engine {
    /// Claims work, waiting for it if asked to. An empty batch: there was none.
    pub async fn claim_deliveries(&self, request: ClaimRequest) -> Result<ClaimedBatch, Error> {
        self.sightings.note(&request.worker_id, Some(request.tags.as_slice()));
        let claimer = Claimer {
            queues: request.tags.as_slice().iter().map(|tag| queue_of_tag(tag)).collect(),
            worker_id: request.worker_id,
            max: request.max,
            lease_seconds: request.lease_seconds,
        };
        let request_id = request.request_id;
        if request.wait.is_zero() {
            return self.look_once(&claimer, request_id.as_deref()).await;
        }
        let deadline = Instant::now() + request.wait;
        let ticket = self.hub.enter(claimer.queues.clone())?;
        let mut has_waited = false;
        loop {
            let mut look_again_at = deadline;
            // If others wait for the same and have not been woken, there is nothing to find.
            if !ticket.has_company() || request_id.is_some() {
                match self.look_once(&claimer, request_id.as_deref()).await {
                    Ok(batch) if !batch.events().is_empty() => {
                        ticket.looked();
                        ticket.pass_on();
                        return Ok(batch);
                    }
                    Ok(_) => {}
                    // Who waits already outlives a restart of the database.
                    Err(Error::Unavailable(_)) if has_waited => {
                        look_again_at = deadline.min(Instant::now() + LOOK_PAUSE)
                    }
                    Err(error) => return Err(error),
                }
            }
            ticket.looked();
            if self.hub.is_closed() {
                return Ok(ClaimedBatch::empty());
            }
            let woken = tokio::time::timeout_at(look_again_at, ticket.woken()).await.is_ok();
            if self.hub.is_closed() || (!woken && Instant::now() >= deadline) {
                return Ok(ClaimedBatch::empty());
            }
            has_waited = true;
            ticket.look_again();
        }
    }

    async fn look_once(&self, claimer: &Claimer, request_id: Option<&str>) -> Result<ClaimedBatch, Error> {
        let Some(request_id) = request_id.map(str::to_owned) else {
            return self.lanes.claim.call(claimer.clone(), claimer.max).await;
        };
        let (engine, claimer) = (self.clone(), claimer.clone());
        self.detached(async move {
            let (events, undo) = engine.claim_by_request(&claimer, &request_id).await?;
            Ok(ClaimedBatch::new(engine, events, undo))
        })
        .await
    }

    /// Claims for many workers at once: one statement for all that ask for the same queues.
    pub(super) async fn claim_fused(&self, claimers: Vec<Claimer>) -> Answers<ClaimedBatch> {
        let mut groups: BTreeMap<Arc<[String]>, Vec<usize>> = BTreeMap::new();
        for (index, claimer) in claimers.iter().enumerate() {
            groups.entry(claimer.queues.clone()).or_default().push(index);
        }
        let mut answers: Vec<Option<Result<ClaimedBatch, Error>>> = claimers.iter().map(|_| None).collect();
        for (queues, members) in groups {
            let asking: Vec<&Claimer> = members.iter().map(|index| &claimers[*index]).collect();
            match self.claim_for(&queues, &asking).await {
                Ok(shares) => {
                    for (index, events) in members.into_iter().zip(shares) {
                        answers[index] = Some(Ok(ClaimedBatch::new(self.clone(), events, Undo::AtOnce)));
                    }
                }
                Err(error) => members.into_iter().for_each(|index| answers[index] = Some(Err(error.for_another()))),
            }
        }
        let unanswered = || Err(Error::Internal("a claim was not answered".into()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// One look, and wider ones if there is work that it could not reach: others are just
    /// taking it, or it has expired and stands in the way until it is swept. First come,
    /// first served: shares are in the order of the claimers.
    async fn claim_for(&self, queues: &[String], claimers: &[&Claimer]) -> Result<Vec<Vec<EventRow>>, Error> {
        let mut is_swept = false;
        for slack in SLACK {
            let mut conn = self.database.connection().await?;
            let look = self.marks.look(queues);
            let claimed = claim(&mut conn, self, &look, queues, claimers, slack).await?;
            // The sweep below wants one, too, and there may be only one.
            drop(conn);
            self.metrics.events_claimed.inc_by(claimed.events.len() as u64);
            self.note_claim(&look, &claimed);
            if !claimed.out_of_reach || is_swept {
                return Ok(share_out(claimed, claimers));
            }
            is_swept = !self.expire_deliveries().await?.more;
        }
        Ok(claimers.iter().map(|_| Vec::new()).collect())
    }

    /// The same for a claim that may be asked for again.
    async fn claim_by_request(&self, claimer: &Claimer, request_id: &str) -> Result<(Vec<EventRow>, Undo), Error> {
        let mut is_swept = false;
        for slack in SLACK {
            let look = self.marks.look(&claimer.queues);
            let (claimed, undo) = match self.claim_or_repeat(claimer, &look, request_id, slack).await? {
                Asked::Again(standing) => return Ok((standing, Undo::Never)),
                Asked::First(claimed, undo) => (claimed, undo),
            };
            self.metrics.events_claimed.inc_by(claimed.events.len() as u64);
            self.note_claim(&look, &claimed);
            if !claimed.out_of_reach || is_swept {
                return Ok((claimed.events.into_iter().map(|event| event.row).collect(), undo));
            }
            is_swept = !self.expire_deliveries().await?.more;
        }
        Ok((Vec::new(), Undo::Never))
    }

    /// Call it after the commit.
    pub(super) fn note_claim(&self, look: &Look<'_>, claimed: &Claimed) {
        for event in &claimed.events {
            let (queue, rank, seq) = &event.next;
            look.raise(queue, Place { rank: *rank, seq: *seq });
        }
        // Leases are looked at some time after the claim, and never before it.
        let look_at = claimed.events.first().map(|event| event.row.work.updated_at);
        self.moments.wait_for(&FirstMoments { look_at, ..FirstMoments::default() });
    }

    async fn claim_or_repeat(
        &self,
        claimer: &Claimer,
        look: &Look<'_>,
        request_id: &str,
        slack: i64,
    ) -> Result<Asked, Error> {
        let key = RequestKey { namespace_id: DEFAULT_NAMESPACE, worker_id: &claimer.worker_id, request_id };
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
                delivery_ids: claimed.events.iter().map(|event| event.row.event.id).collect(),
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
    look: &Look<'_>,
    queues: &[String],
    claimers: &[&Claimer],
    slack: i64,
) -> Result<Claimed, Error> {
    let slots = || claimers.iter().flat_map(|claimer| std::iter::repeat_n(claimer, claimer.max));
    let worker_ids: Vec<&str> = slots().map(|claimer| claimer.worker_id.as_str()).collect();
    let lease_seconds: Vec<i32> = slots().map(|claimer| claimer.lease_seconds).collect();
    let from: Vec<(i16, i64)> = look.from.iter().map(|mark| (mark.rank, mark.seq)).collect();
    let query = ClaimQuery {
        namespace_id: DEFAULT_NAMESPACE,
        queues,
        from: &from,
        windows: &vec![worker_ids.len() as i64 + slack; queues.len()],
        worker_ids: &worker_ids,
        lease_seconds: &lease_seconds,
        queue_leases: None,
        subscriptions: None,
        now: engine.now(),
    };
    Ok(claim_deliveries(conn, &query).await?)
}

fn share_out(claimed: Claimed, claimers: &[&Claimer]) -> Vec<Vec<EventRow>> {
    let owner_of_slot: Vec<usize> =
        claimers.iter().enumerate().flat_map(|(index, claimer)| std::iter::repeat_n(index, claimer.max)).collect();
    let mut shares: Vec<Vec<EventRow>> = claimers.iter().map(|_| Vec::new()).collect();
    for event in claimed.events {
        shares[owner_of_slot[event.slot]].push(event.row);
    }
    shares
}
