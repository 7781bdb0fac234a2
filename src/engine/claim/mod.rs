//! Claims: work is handed out under a lease.
//!
//! [`Engine::claim_deliveries`] is the call. It waits in the caller's own future, so that a caller that
//! disconnects stops waiting. Each scan for work goes through the claim batcher ([`batch`]), where all
//! workers that ask at the same time are served together, and where a caller that disconnects does not
//! interrupt a transaction. A claim with an idempotency key has a transaction of its own
//! ([`by_request`]). What was claimed travels as a [`ClaimedBatch`]; dropping one that was not delivered
//! releases its work. A worker that waits may also get events from the statement that publishes them
//! ([`crate::engine::publish::hand_over`]).

mod batch;
mod by_request;
mod claimed_batch;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::api_key::TagPatterns;
use crate::domain::ids::NamespaceId;
use crate::domain::tags::Tags;
use crate::error::Error;
use crate::store::tables::events::Recipient;
use crate::store::tables::ready::QueueKey;

use crate::engine::Engine;
pub(crate) use crate::engine::claim::claimed_batch::Undo;
pub use crate::engine::claim::claimed_batch::{ClaimedBatch, SentClaim};
use crate::engine::waiting::hub::Queues;

/// The number of entries beyond the wanted ones that a claim reads, so that entries which other claims
/// have locked do not hide what is behind them.
const SLACK: i64 = 3;

/// The same for a claim that found only locked or expired entries.
const WIDE_SLACK: i64 = 500;

/// The maximum number of scans of a claim that finds only locked or expired entries.
const MAX_SCANS: usize = 5;

/// The maximum size of the payloads of one claim, unless it is a single event.
pub(crate) const CLAIM_BYTES: usize = 16 * 1024 * 1024;

/// The pause of a waiting worker after a scan that failed or found only locked entries.
const SCAN_PAUSE: Duration = Duration::from_millis(500);

/// A worker's request for events.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The worker takes events with any of these tags.
    pub tags: Tags,
    pub worker_id: String,
    /// The maximum number of events.
    pub max: usize,
    /// The maximum wait for the first event.
    pub wait: Duration,
    pub lease_seconds: f64,
    /// Identifies the request, so that it can be repeated.
    pub idempotency_key: Option<String>,
    /// The tags that the caller may work on, if its key is limited to some. A repeated request returns no event that
    /// has none of them: another key may have claimed it under the same name.
    pub tag_patterns: Option<Arc<TagPatterns>>,
}

/// One worker in a batched claim.
#[derive(Debug, Clone)]
pub struct ClaimCall {
    namespace: NamespaceId,
    queues: Queues,
    worker_id: String,
    max: usize,
    lease_seconds: f64,
    tag_patterns: Option<Arc<TagPatterns>>,
    /// The number of its waiter in the hub, if it waits.
    waiter: Option<u64>,
}

impl Engine {
    /// Claims events of a namespace, waiting for the first one if asked to. Returns an empty batch if there is none.
    pub async fn claim_deliveries(&self, namespace: NamespaceId, request: ClaimRequest) -> Result<ClaimedBatch, Error> {
        self.worker_sightings().note(namespace, &request.worker_id, Some(request.tags.as_slice()));
        let mut call = ClaimCall {
            namespace,
            queues: request.tags.as_slice().iter().map(|tag| QueueKey::of_tag(namespace, tag)).collect(),
            worker_id: request.worker_id,
            max: request.max,
            lease_seconds: request.lease_seconds,
            tag_patterns: request.tag_patterns,
            waiter: None,
        };
        let key = request.idempotency_key.as_deref();
        let scan = async |call: &ClaimCall| match key {
            // Boxed, because it is rare, and every waiting worker would carry its size.
            Some(key) => Box::pin(self.claim_by_request(call, key)).await,
            None => self.0.batchers.claim.call(namespace, call.clone(), call.max).await,
        };
        if request.wait.is_zero() {
            return scan(&call).await;
        }
        let deadline = Instant::now() + request.wait;
        let waiter = self.hub().enter(call.queues.clone(), call.max)?;
        call.waiter = Some(waiter.number());
        if key.is_none() {
            waiter.accept_hand_over(Recipient { worker_id: call.worker_id.clone(), lease_seconds: call.lease_seconds });
        }
        let mut has_waited = false;
        loop {
            let mut scan_again_at = deadline;
            // What was claimed under this key can be returned even if the queues are empty.
            if waiter.should_scan() || key.is_some() {
                match scan(&call).await {
                    Ok(batch) if !batch.events().is_empty() => return Ok(batch),
                    // All entries are locked. The transaction that locked them may leave them in the queue.
                    Ok(_) if waiter.should_scan() => scan_again_at = deadline.min(Instant::now() + SCAN_PAUSE),
                    Ok(_) => {}
                    // A worker that already waits survives a restart of the database.
                    Err(Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Overloaded) if has_waited => {
                        scan_again_at = deadline.min(Instant::now() + SCAN_PAUSE);
                    }
                    Err(error) => return Err(error),
                }
            }
            let is_woken =
                !self.hub().is_closed() && tokio::time::timeout_at(scan_again_at, waiter.woken()).await.is_ok();
            if let Some(events) = waiter.take_events() {
                return Ok(events);
            }
            if self.hub().is_closed() || (!is_woken && Instant::now() >= deadline) {
                return Ok(waiter.last_events().await.unwrap_or_else(ClaimedBatch::empty));
            }
            has_waited = true;
        }
    }
}
