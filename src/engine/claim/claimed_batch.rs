//! Claimed work on its way to its worker, and what happens to it if it does not arrive.

use std::time::Duration;

use crate::domain::ids::{DeliveryId, LeaseId, NamespaceId};
use crate::domain::lease::Caller;
use crate::error::Error;
use crate::store::tables::claim_requests::{RequestKey, is_last_ask};
use crate::store::tables::event_columns::EventRow;

use crate::engine::change_set::Applied;
use crate::engine::settle::judged::settle_all;
use crate::engine::settle::{SettleCall, Settlement};
use crate::engine::{Engine, transaction};

/// How often giving work back is tried before it is left to the lease.
const UNDO_TRIES: u32 = 5;

/// Claimed work on its way to its worker. Dropped before it is [sent](ClaimedBatch::send), it
/// is given back at once.
pub struct ClaimedBatch {
    events: Vec<EventRow>,
    claim: SentClaim,
}

/// A claim whose response is on its way to the worker. Dropped before [`SentClaim::delivered`],
/// it is undone.
///
/// It may be kept for as long as the worker's connection lasts, so it holds the numbers of the
/// leases and not the events.
pub struct SentClaim {
    worker_id: String,
    leases: Vec<(DeliveryId, LeaseId)>,
    undo: Undo,
    engine: Option<Engine>,
}

/// Whether claims are given back if the answer that carries them does not arrive.
#[derive(Debug, Clone)]
pub(crate) enum Undo {
    /// Yes.
    AtOnce,
    /// Yes, unless the worker has asked again since: then they are the later answer's.
    IfLast(Ask),
    /// No: an earlier answer may have arrived, and the worker be at work.
    Never,
}

/// One asking of a request that may be asked again.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub worker_id: String,
    pub request_id: String,
    pub number: i32,
}

impl Ask {
    fn key(&self) -> RequestKey<'_> {
        RequestKey { namespace: NamespaceId::DEFAULT, worker_id: &self.worker_id, request_id: &self.request_id }
    }
}

impl ClaimedBatch {
    pub(crate) fn new(engine: Engine, events: Vec<EventRow>, undo: Undo) -> Self {
        let worker_id = events.first().and_then(|row| row.work.worker_id.clone()).unwrap_or_default();
        let leases = events.iter().map(|row| (row.event.id.own_delivery(), row.work.lease_id)).collect();
        ClaimedBatch { events, claim: SentClaim { worker_id, leases, undo, engine: Some(engine) } }
    }

    /// There was nothing to claim.
    pub(crate) fn empty() -> Self {
        let claim = SentClaim { worker_id: String::new(), leases: Vec::new(), undo: Undo::Never, engine: None };
        ClaimedBatch { events: Vec::new(), claim }
    }

    /// What was claimed.
    pub fn events(&self) -> &[EventRow] {
        &self.events
    }

    /// Notes that the worker has it.
    pub fn delivered(&mut self) {
        self.claim.delivered();
    }

    /// Returns the claim that the response carries, without the events.
    pub fn send(self) -> SentClaim {
        self.claim
    }
}

impl SentClaim {
    /// Notes that the worker has the response.
    pub fn delivered(&mut self) {
        self.engine = None;
    }
}

impl Drop for SentClaim {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take().filter(|_| !self.leases.is_empty()) else { return };
        let ask = match std::mem::replace(&mut self.undo, Undo::Never) {
            Undo::AtOnce => None,
            Undo::IfLast(ask) => Some(ask),
            Undo::Never => return,
        };
        let (worker_id, leases) = (std::mem::take(&mut self.worker_id), std::mem::take(&mut self.leases));
        engine.0.runtime.clone().spawn(undo_claims(engine, worker_id, leases, ask));
    }
}

async fn undo_claims(engine: Engine, worker_id: String, leases: Vec<(DeliveryId, LeaseId)>, ask: Option<Ask>) {
    let calls: Vec<SettleCall> = leases
        .into_iter()
        .map(|(delivery_id, lease_id)| SettleCall {
            delivery_id,
            caller: Caller { worker_id: worker_id.clone(), lease_id: Some(lease_id) },
            settlement: Settlement::Release { delay_seconds: 0.0, reason: Some("client_gone".into()) },
            push_ended_at: None,
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
    /// Releases claims that did not reach their worker, unless it has asked again since.
    async fn give_back(&self, calls: &[SettleCall], ask: Option<&Ask>) -> Result<(), Error> {
        let calls: Vec<&SettleCall> = calls.iter().collect();
        let applied = transaction!(self, |conn| {
            if let Some(ask) = ask
                && !is_last_ask(conn, ask.key(), ask.number).await?
            {
                return Ok(Applied::default());
            }
            Ok(settle_all(conn, self, &calls).await?.1)
        })?;
        self.notify_after_commit(&applied);
        Ok(())
    }
}
