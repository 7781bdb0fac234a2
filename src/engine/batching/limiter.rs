//! The number of batches that run at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::domain::ids::NamespaceId;
use crate::engine::batching::dominance::Dominance;
use crate::error::Error;

/// The factor by which a batch with calls of a dominant namespace waits longer for its permit.
const RESTRAINED_PATIENCE: u32 = 10;

/// The length of the pause after a batch with calls of a dominant namespace, in parts of the time that the batch took.
const PAUSE_PER_TIME: f64 = 0.5;

/// The maximum length of such a pause.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Returns the connection for a batch, or an error if there is none.
pub(crate) type ConnectionSource<K> = dyn Fn() -> Pin<Box<dyn Future<Output = Result<K, Error>> + Send>> + Send + Sync;

/// Limits the number of batches that run at once, and provides their connections.
pub(crate) struct BatchLimiter<K> {
    limit: u32,
    /// One permit per batch, granted in the order of the requests.
    permits: Arc<Semaphore>,
    pub(super) connect: Box<ConnectionSource<K>>,
    pub(super) dominance: Arc<Dominance>,
}

impl<K> BatchLimiter<K> {
    /// Returns a limiter that admits `limit` batches at once.
    pub(crate) fn new(limit: usize, connect: Box<ConnectionSource<K>>) -> Arc<Self> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let permits = Arc::new(Semaphore::new(limit as usize));
        Arc::new(BatchLimiter { limit, permits, connect, dominance: Arc::default() })
    }

    /// Waits for the permit of a batch whose calls gather since `since`. After `patience` it is not granted, and the batch
    /// runs without one.
    ///
    /// While a namespace is dominant, batches with its calls are restrained: at most half as many run at once, they wait
    /// longer, and each is followed by a pause. Otherwise it would take all of the database's processors, and the batches of others would wait for
    /// these. Batches without its calls run at once.
    pub(super) async fn permit(
        &self,
        since: Instant,
        patience: Duration,
        has_calls_of: impl FnOnce(NamespaceId) -> bool,
    ) -> BatchPermit {
        let (permits, patience, is_restrained) = match self.dominance.namespace() {
            Some(dominant) if has_calls_of(dominant) => (self.limit.min(2), patience * RESTRAINED_PATIENCE, true),
            Some(_) => return BatchPermit::default(),
            None => (1, patience, false),
        };
        // The semaphore is never closed, so this yields a permit, or none if it takes too long.
        let permit = timeout_at(since + patience, self.permits.clone().acquire_many_owned(permits)).await;
        BatchPermit { permit: permit.ok().and_then(Result::ok), is_restrained }
    }
}

/// The right to run a batch.
#[derive(Default)]
pub(super) struct BatchPermit {
    /// `None` if the batch runs without one.
    permit: Option<OwnedSemaphorePermit>,
    is_restrained: bool,
}

impl BatchPermit {
    #[cfg(test)]
    pub(super) fn is_granted(&self) -> bool {
        self.permit.is_some()
    }

    /// Gives the permit back after a batch that took this long. A batch of a dominant namespace is followed by a pause, in
    /// which the processors are free for others.
    pub(super) fn give_back(self, took: Duration) {
        if let Some(permit) = self.permit.filter(|_| self.is_restrained) {
            tokio::spawn(async move {
                tokio::time::sleep(pause_after(took)).await;
                drop(permit);
            });
        }
    }
}

/// Returns the length of the pause after a batch of a dominant namespace that took this long.
pub(super) fn pause_after(took: Duration) -> Duration {
    took.mul_f64(PAUSE_PER_TIME).min(MAX_PAUSE)
}
