//! Limits the memory of all request bodies together.
//!
//! A request takes its share when its body has arrived, or has turned out to be large, and keeps it
//! until the response. This bounds the bytes, and not only the number, of bodies being read and of
//! requests waiting for the database. If there is not enough memory, the request waits up to
//! `MAX_WAIT` with the rest of its body still in the socket. Then it is refused, and the client
//! retries later.
//!
//! Half of the memory is for small bodies: a few large bodies that arrive slowly must not keep other
//! clients from publishing.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

/// Bodies of up to this many bytes are small.
pub(crate) const SMALL_BODY: usize = 64 * 1024;

/// The time that a request waits for memory.
const MAX_WAIT: Duration = Duration::from_secs(4);

/// The maximum number of bytes of results that `POST /events/settle` holds while its claims wait.
const WAITING_RESULT_BYTES: usize = 64 * 1024 * 1024;

/// The memory for bodies of one server, and for results whose response waits for a claim.
#[derive(Clone)]
pub(crate) struct RequestMemory {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    waiting_results: Arc<Semaphore>,
}

/// A request's share of the memory. Dropping it frees the share.
pub(crate) struct Share(OwnedSemaphorePermit);

impl RequestMemory {
    /// Creates a memory of `megabytes`, half of it for small bodies.
    pub(crate) fn new(megabytes: usize) -> Self {
        let bytes = megabytes * 1024 * 1024;
        RequestMemory {
            small: Arc::new(Semaphore::new(bytes / 2)),
            large: Arc::new(Semaphore::new(bytes / 2)),
            waiting_results: Arc::new(Semaphore::new(WAITING_RESULT_BYTES)),
        }
    }

    /// Returns the memory of a request.
    pub(crate) fn of(request: &HttpRequest) -> Result<&Self, Error> {
        request.app_data::<RequestMemory>().ok_or_else(|| Error::Internal("no memory for bodies".into()))
    }

    /// Takes a share for `bytes` of results whose response waits for a claim. Returns `None` if there
    /// is not enough memory. These are not taken from the memory for bodies: a claim waits for up to a
    /// minute, and waiting workers must not keep others from sending bodies.
    pub(crate) fn try_hold_results(&self, bytes: usize) -> Option<Share> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.waiting_results.clone().try_acquire_many_owned(permits).ok().map(Share)
    }

    /// Takes a share for a body of up to `bytes`.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Share, Error> {
        self.take_within(bytes, MAX_WAIT).await
    }

    async fn take_within(&self, bytes: usize, wait: Duration) -> Result<Share, Error> {
        let part = if bytes <= SMALL_BODY { &self.small } else { &self.large };
        // No body is larger than 16 MiB.
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Ok(permit) = part.clone().try_acquire_many_owned(permits) {
            return Ok(Share(permit));
        }
        // Boxed, because it is rare, and every request would carry its size.
        Box::pin(Self::wait_for(part, permits, wait)).await
    }

    async fn wait_for(part: &Arc<Semaphore>, permits: u32, wait: Duration) -> Result<Share, Error> {
        match tokio::time::timeout(wait, part.clone().acquire_many_owned(permits)).await {
            Ok(Ok(permit)) => Ok(Share(permit)),
            // The semaphores are never closed, so this is the timeout.
            Ok(Err(_)) | Err(_) => Err(Error::NoMemory),
        }
    }
}

impl Share {
    /// Frees all but `bytes` of the share.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let surplus = self.0.num_permits().saturating_sub(bytes);
        drop(self.0.split(surplus));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn a_freed_share_can_be_taken_again() {
        let memory = RequestMemory::new(4);
        let mut share = memory.take(2 * MIB).await.unwrap();
        assert!(memory.take(MIB).now_or_never().is_none());
        share.shrink(MIB);
        let more = memory.take(MIB).now_or_never();
        assert!(more.is_some_and(|share| share.is_ok()));
    }

    #[tokio::test]
    async fn a_request_that_finds_no_memory_is_refused_after_the_wait() {
        let memory = RequestMemory::new(4);
        let _all = memory.take(2 * MIB).await.unwrap();
        assert!(matches!(memory.take_within(MIB, Duration::ZERO).await, Err(Error::NoMemory)));
    }

    #[tokio::test]
    async fn results_that_wait_for_a_claim_take_no_memory_from_bodies_and_have_a_limit() {
        let memory = RequestMemory::new(4);
        let all = memory.try_hold_results(WAITING_RESULT_BYTES);
        assert!(all.is_some() && memory.try_hold_results(1).is_none());
        assert!(memory.take(2 * MIB).now_or_never().is_some());
        drop(all);
        assert!(memory.try_hold_results(1).is_some());
    }

    #[tokio::test]
    async fn large_bodies_leave_memory_for_small_ones() {
        let memory = RequestMemory::new(4);
        let _all = memory.take(2 * MIB).await.unwrap();
        assert!(memory.take(SMALL_BODY).now_or_never().is_some());
    }
}
