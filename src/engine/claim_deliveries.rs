//! `claim_deliveries`: work is handed out under a lease.
//!
//! The wait happens in the caller's own future, so that a caller who goes away stops waiting;
//! each look for work is a task of its own, so that a caller who goes away in the middle of
//! it does not cut a transaction in two. What was claimed travels as a [`ClaimedBatch`], and
//! whoever drops one without having delivered it gives the work back.

use std::time::Duration;

use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::lease::Caller;
use crate::domain::tags::Tags;
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::claim_requests::{Remembered, RequestKey, is_last_ask};
use crate::store::claim_requests::{load_standing, lock_request, remember_claim};
use crate::store::deliveries::{ClaimQuery, Claimed, claim_deliveries};
use crate::store::events::EventRow;
use crate::store::ready::queue_of_tag;

use super::changes::Written;
use super::settle_deliveries::{Word, WorkCall, settle_all};
use super::sweep::SWEEP_ROWS;
use super::{Engine, transaction};

/// How much further than needed a claim looks, so that work which others are just taking
/// does not hide what is behind it: a little at first, and far if it has to look again.
const SLACK: [i64; 5] = [3, 500, 500, 500, 500];

/// How often giving work back is tried before it is left to the lease.
const UNDO_TRIES: u32 = 5;

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

/// Claimed work on its way to its worker. Dropped before [`ClaimedBatch::delivered`], it is
/// given back at once.
pub struct ClaimedBatch {
    events: Vec<EventRow>,
    undo: Undo,
    engine: Option<Engine>,
}

/// Whether claims are given back if the answer that carries them does not arrive.
#[derive(Debug, Clone)]
enum Undo {
    /// Yes.
    AtOnce,
    /// Yes, unless the worker has asked again since: then they are the later answer's.
    IfLast(Ask),
    /// No: an earlier answer may have arrived, and the worker be at work.
    Never,
}

/// One asking of a request that may be asked again.
#[derive(Debug, Clone)]
struct Ask {
    worker_id: String,
    request_id: String,
    number: i32,
}

impl Ask {
    fn key(&self) -> RequestKey<'_> {
        RequestKey { namespace_id: DEFAULT_NAMESPACE, worker_id: &self.worker_id, request_id: &self.request_id }
    }
}

impl ClaimedBatch {
    /// What was claimed.
    pub fn events(&self) -> &[EventRow] {
        &self.events
    }

    /// The worker has it.
    pub fn delivered(&mut self) {
        self.engine = None;
    }
}

impl Drop for ClaimedBatch {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take().filter(|_| !self.events.is_empty()) else { return };
        let events = std::mem::take(&mut self.events);
        let ask = match std::mem::replace(&mut self.undo, Undo::Never) {
            Undo::AtOnce => None,
            Undo::IfLast(ask) => Some(ask),
            Undo::Never => return,
        };
        engine.runtime.clone().spawn(undo_claims(engine, events, ask));
    }
}

async fn undo_claims(engine: Engine, events: Vec<EventRow>, ask: Option<Ask>) {
    let calls: Vec<WorkCall> = events
        .into_iter()
        .map(|row| WorkCall {
            event_id: row.event.id,
            caller: Caller { worker_id: row.work.worker_id.unwrap_or_default(), lease_id: Some(row.work.lease_id) },
            word: Word::Release { delay_seconds: 0.0, reason: Some("client_gone".into()) },
        })
        .collect();
    for attempt in 1..=UNDO_TRIES {
        match engine.give_back(&calls, ask.as_ref()).await {
            Ok(()) => return,
            Err(error) => {
                log::warn!(attempt, claims = calls.len(); "could not give back the work of a worker that is gone: {error}")
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Engine {
    /// Claims work, waiting for it if asked to. An empty batch: there was none.
    pub async fn claim_deliveries(&self, request: ClaimRequest) -> Result<ClaimedBatch, Error> {
        self.sightings.note(&request.worker_id, Some(request.tags.as_slice()));
        let queues: Vec<String> = request.tags.as_slice().iter().map(|tag| queue_of_tag(tag)).collect();
        if request.wait.is_zero() {
            return self.look_once(&request, &queues).await;
        }
        let deadline = Instant::now() + request.wait;
        let ticket = self.hub.enter(queues.clone())?;
        loop {
            let batch = self.look_once(&request, &queues).await?;
            if !batch.events.is_empty() {
                ticket.pass_on();
                return Ok(batch);
            }
            if self.hub.is_closed() || tokio::time::timeout_at(deadline, ticket.woken()).await.is_err() {
                return Ok(batch);
            }
            ticket.look_again();
            if self.hub.is_closed() {
                return Ok(batch);
            }
        }
    }

    async fn look_once(&self, request: &ClaimRequest, queues: &[String]) -> Result<ClaimedBatch, Error> {
        let (engine, request, queues) = (self.clone(), request.clone(), queues.to_vec());
        self.detached(async move {
            let (events, undo) = engine.claim_within_reach(&request, &queues).await?;
            Ok(ClaimedBatch { events, undo, engine: Some(engine) })
        })
        .await
    }

    /// One look, and wider ones if there is work that it could not reach: others are just
    /// taking it, or it has expired and stands in the way until it is swept.
    async fn claim_within_reach(
        &self,
        request: &ClaimRequest,
        queues: &[String],
    ) -> Result<(Vec<EventRow>, Undo), Error> {
        let mut is_swept = false;
        for slack in SLACK {
            let (claimed, undo) = match &request.request_id {
                None => {
                    let conn = &mut *self.database.connection().await?;
                    (claim(conn, self, request, queues, slack).await?, Undo::AtOnce)
                }
                Some(request_id) => self.claim_once_per_request(request, queues, request_id, slack).await?,
            };
            if !claimed.out_of_reach || is_swept {
                return Ok((claimed.events, undo));
            }
            is_swept = (self.expire_deliveries().await? as i64) < SWEEP_ROWS;
        }
        Ok((Vec::new(), Undo::Never))
    }

    async fn claim_once_per_request(
        &self,
        request: &ClaimRequest,
        queues: &[String],
        request_id: &str,
        slack: i64,
    ) -> Result<(Claimed, Undo), Error> {
        let key = RequestKey { namespace_id: DEFAULT_NAMESPACE, worker_id: &request.worker_id, request_id };
        transaction!(self, |conn| {
            let locked = lock_request(conn, key).await?;
            let standing = load_standing(conn, &locked.remembered, self.now()).await?;
            if !standing.is_empty() {
                return Ok((Claimed { events: standing, out_of_reach: false }, Undo::Never));
            }
            let claimed = claim(conn, self, request, queues, slack).await?;
            if claimed.events.is_empty() {
                return Ok((claimed, Undo::Never));
            }
            let given = Remembered {
                delivery_ids: claimed.events.iter().map(|row| row.event.id).collect(),
                lease_ids: claimed.events.iter().map(|row| row.work.lease_id).collect(),
            };
            remember_claim(conn, key, &given, self.now()).await?;
            let worker_id = request.worker_id.clone();
            Ok((claimed, Undo::IfLast(Ask { worker_id, request_id: request_id.to_owned(), number: locked.asks })))
        })
    }

    /// Releases claims that did not reach their worker, unless it has asked again since.
    async fn give_back(&self, calls: &[WorkCall], ask: Option<&Ask>) -> Result<(), Error> {
        let written = transaction!(self, |conn| {
            if let Some(ask) = ask
                && !is_last_ask(conn, ask.key(), ask.number).await?
            {
                return Ok(Written::default());
            }
            Ok(settle_all(conn, self, calls).await?.1)
        })?;
        self.wake(&written.entered_ready);
        Ok(())
    }
}

async fn claim(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    request: &ClaimRequest,
    queues: &[String],
    slack: i64,
) -> Result<Claimed, Error> {
    let limit = request.max as i64;
    let query = ClaimQuery {
        namespace_id: DEFAULT_NAMESPACE,
        queues,
        limit,
        window: limit + slack,
        worker_id: &request.worker_id,
        lease_seconds: request.lease_seconds,
        now: engine.now(),
    };
    Ok(claim_deliveries(conn, &query).await?)
}
