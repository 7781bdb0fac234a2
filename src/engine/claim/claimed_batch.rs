//! Claimed events on their way to the worker, and their release if the response does not arrive.

use std::time::Duration;

use crate::domain::actor::ServerActor;
use crate::domain::ids::{DeliveryKey, LeaseId, NamespaceId};
use crate::domain::lease::Caller;
use crate::error::Error;
use crate::store::tables::claim_requests::{RequestKey, is_last_ask};
use crate::store::tables::event_columns::EventRow;

use crate::engine::change_set::Applied;
use crate::engine::settle::judged::settle_all;
use crate::engine::settle::{SettleCall, Settlement};
use crate::engine::{Engine, transaction};

/// The number of tries to release claims. After that the leases run out.
const UNDO_TRIES: u32 = 5;

/// Claimed events that are not sent yet. Dropping them before they are [sent](ClaimedBatch::send)
/// releases them.
pub struct ClaimedBatch {
    events: Vec<EventRow>,
    claim: SentClaim,
}

/// A claim whose response is on its way to the worker. Dropping it before [`SentClaim::delivered`]
/// undoes the claim.
///
/// It may be kept for as long as the worker's connection lasts, so it holds only the ids of the leases
/// and not the events.
pub struct SentClaim {
    worker_id: String,
    leases: Vec<(DeliveryKey, LeaseId)>,
    undo: Undo,
    engine: Option<Engine>,
}

/// Whether claims are released if the response that carries them does not arrive.
#[derive(Debug, Clone)]
pub(crate) enum Undo {
    AtOnce,
    /// Released, unless the worker has repeated the request since: a later response carries them then.
    IfLast(RepeatedRequest),
    /// Not released: an earlier response may have arrived, and the worker may be processing the events.
    Never,
}

/// One call of a request that may be repeated.
#[derive(Debug, Clone)]
pub(crate) struct RepeatedRequest {
    pub namespace: NamespaceId,
    pub worker_id: String,
    pub idempotency_key: String,
    /// The number of the call among those of the same request.
    pub number: i32,
}

impl RepeatedRequest {
    fn key(&self) -> RequestKey<'_> {
        RequestKey { namespace: self.namespace, worker_id: &self.worker_id, idempotency_key: &self.idempotency_key }
    }
}

impl ClaimedBatch {
    pub(crate) fn new(engine: Engine, namespace: NamespaceId, events: Vec<EventRow>, undo: Undo) -> Self {
        let worker_id = events.first().and_then(|row| row.work.worker_id.clone()).unwrap_or_default();
        let own = |row: &EventRow| namespace.delivery(row.event.id.own_delivery());
        let leases = events.iter().map(|row| (own(row), row.work.lease_id)).collect();
        ClaimedBatch { events, claim: SentClaim { worker_id, leases, undo, engine: Some(engine) } }
    }

    /// Returns a batch without events.
    pub(crate) fn empty() -> Self {
        let claim = SentClaim { worker_id: String::new(), leases: Vec::new(), undo: Undo::Never, engine: None };
        ClaimedBatch { events: Vec::new(), claim }
    }

    pub fn events(&self) -> &[EventRow] {
        &self.events
    }

    /// Records that the worker has received the events.
    pub fn delivered(&mut self) {
        self.claim.delivered();
    }

    /// Returns the claim that the response carries, without the events.
    pub fn send(self) -> SentClaim {
        self.claim
    }
}

impl SentClaim {
    /// Records that the worker has received the response.
    pub fn delivered(&mut self) {
        self.engine = None;
    }
}

impl Drop for SentClaim {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take().filter(|_| !self.leases.is_empty()) else { return };
        let request = match std::mem::replace(&mut self.undo, Undo::Never) {
            Undo::AtOnce => None,
            Undo::IfLast(request) => Some(request),
            Undo::Never => return,
        };
        let (worker_id, leases) = (std::mem::take(&mut self.worker_id), std::mem::take(&mut self.leases));
        let (undos, runtime) = (engine.0.claim_undos.clone(), engine.0.runtime.clone());
        undos.spawn_on(undo_claims(engine, worker_id, leases, request), &runtime);
    }
}

async fn undo_claims(
    engine: Engine,
    worker_id: String,
    leases: Vec<(DeliveryKey, LeaseId)>,
    request: Option<RepeatedRequest>,
) {
    let calls: Vec<SettleCall> = leases
        .into_iter()
        .map(|(delivery, lease_id)| SettleCall {
            delivery,
            caller: Caller { worker_id: worker_id.clone(), lease_id: Some(lease_id) },
            settlement: Settlement::Release {
                delay_seconds: 0.0,
                reason: Some("client_gone".into()),
                service: Some(ServerActor::ClaimUndo),
            },
            push_ended_at: None,
            tag_patterns: None,
        })
        .collect();
    for attempt in 1..=UNDO_TRIES {
        match engine.release_claims(&calls, request.as_ref()).await {
            Ok(()) => return,
            Err(error) => {
                log::warn!(attempt, claims = calls.len(); "could not release the claims of a worker that has disconnected: {error}");
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Engine {
    /// Waits until all claims are undone whose responses did not arrive. Call it when no more responses are sent.
    pub(crate) async fn finish_claim_undos(&self) {
        self.0.claim_undos.close();
        self.0.claim_undos.wait().await;
    }

    /// Releases claims that did not reach their worker, unless the worker has repeated the request since.
    async fn release_claims(&self, calls: &[SettleCall], request: Option<&RepeatedRequest>) -> Result<(), Error> {
        let calls: Vec<&SettleCall> = calls.iter().collect();
        let applied = transaction!(self, |conn| {
            if let Some(request) = request
                && !is_last_ask(conn, request.key(), request.number).await?
            {
                return Ok(Applied::default());
            }
            Ok(settle_all(conn, self, &calls).await?.1)
        })?;
        self.notify_after_commit(&applied);
        Ok(())
    }
}
