//! How much memory the bodies of requests may take, all of them together.
//!
//! A request takes its share when its body has arrived, or has turned out to be large, and keeps it
//! until it is answered, so that large bodies being read and calls waiting for the database are
//! bounded by bytes and not only by number. Who finds no room waits a little with the rest of its
//! body still in the socket, and is then told to come back later.
//!
//! Small bodies have a part of their own: a few large ones that arrive slowly must not keep
//! everybody else from publishing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

/// Bodies of up to this many bytes are small.
pub const SMALL_BODY: usize = 64 * 1024;

/// How long a request waits for room.
const ROOM_WAIT: Duration = Duration::from_secs(4);

/// The memory for bodies of one server.
#[derive(Clone)]
pub struct RequestMemory {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// A request's share of the memory; dropping it gives it back.
pub struct Share(OwnedSemaphorePermit);

impl RequestMemory {
    /// Divides `megabytes`: a half is for small bodies.
    pub fn new(megabytes: usize) -> Self {
        let bytes = megabytes * 1024 * 1024;
        RequestMemory { small: Arc::new(Semaphore::new(bytes / 2)), large: Arc::new(Semaphore::new(bytes / 2)) }
    }

    /// Takes room for a body of up to `bytes`.
    pub async fn take(&self, bytes: usize) -> Result<Share, Error> {
        self.take_within(bytes, ROOM_WAIT).await
    }

    async fn take_within(&self, bytes: usize, wait: Duration) -> Result<Share, Error> {
        let part = if bytes <= SMALL_BODY { &self.small } else { &self.large };
        // No body is larger than 16 MiB.
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        match tokio::time::timeout(wait, part.clone().acquire_many_owned(permits)).await {
            Ok(Ok(permit)) => Ok(Share(permit)),
            // Nobody closes the semaphores, so this is the time being up.
            Ok(Err(_)) | Err(_) => Err(Error::NoMemory),
        }
    }
}

impl Share {
    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
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
    async fn what_is_given_back_can_be_taken_again() {
        let memory = RequestMemory::new(4);
        let mut share = memory.take(2 * MIB).await.unwrap();
        assert!(memory.take(MIB).now_or_never().is_none());
        share.shrink(MIB);
        let more = memory.take(MIB).now_or_never();
        assert!(more.is_some_and(|share| share.is_ok()));
    }

    #[tokio::test]
    async fn who_finds_no_room_is_told_so_in_the_end() {
        let memory = RequestMemory::new(4);
        let _all = memory.take(2 * MIB).await.unwrap();
        assert!(matches!(memory.take_within(MIB, Duration::ZERO).await, Err(Error::NoMemory)));
    }

    #[tokio::test]
    async fn large_bodies_leave_room_for_small_ones() {
        let memory = RequestMemory::new(4);
        let _all = memory.take(2 * MIB).await.unwrap();
        assert!(memory.take(SMALL_BODY).now_or_never().is_some());
    }
}
