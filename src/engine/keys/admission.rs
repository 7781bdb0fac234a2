//! What a request is admitted with: its caller, and a signal for requests that wait.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, Utc};
use futures_util::FutureExt as _;
use tokio_util::future::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::domain::api_key::Principal;
use crate::error::Error;
use crate::store::tables::api_keys::KeyRow;

/// A caller that was let in. All requests with the same secret share one.
#[derive(Debug)]
pub struct Admission {
    principal: Principal,
    /// When the key or the secret ends.
    expires_at: Option<DateTime<Utc>>,
    is_revoked: bool,
    /// Whether a request has used the key since its use was last recorded.
    is_used: AtomicBool,
    ended: CancellationToken,
    end: OnceLock<KeyEnd>,
}

/// Why an admission has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEnd {
    Revoked,
    Expired,
    /// The key was removed, or keys are required from now on.
    Unknown,
    /// It has left the cache, because the cache is full or the key has changed. Nothing is wrong with the key, so a
    /// request that waits just ends early.
    Left,
}

impl KeyEnd {
    /// Returns the error of a request, or `None` if it may end without one.
    fn error(self) -> Option<Error> {
        match self {
            KeyEnd::Revoked => Some(Error::KeyRevoked),
            KeyEnd::Expired => Some(Error::KeyExpired),
            KeyEnd::Unknown => Some(Error::Unauthenticated("the key is not known any longer")),
            KeyEnd::Left => None,
        }
    }
}

impl Admission {
    pub(crate) fn of(principal: Principal) -> Self {
        Admission {
            principal,
            expires_at: None,
            is_revoked: false,
            is_used: AtomicBool::new(false),
            ended: CancellationToken::new(),
            end: OnceLock::new(),
        }
    }

    pub(crate) fn of_key(row: KeyRow) -> Self {
        let principal = Principal {
            key_id: Some(row.id),
            name: Some(row.name.into()),
            namespace: row.namespace_id,
            scopes: row.scopes,
            tag_patterns: row.tag_patterns.map(Into::into),
            publish_rate: row.publish_rate,
        };
        let is_revoked = row.revoked_at.is_some();
        Admission { expires_at: row.expires_at, is_revoked, ..Admission::of(principal) }
    }

    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns why the key is not good at `now`, or `None` if it is.
    pub(crate) fn end_at(&self, now: DateTime<Utc>) -> Option<KeyEnd> {
        match self.expires_at {
            _ if self.is_revoked => Some(KeyEnd::Revoked),
            Some(at) if at <= now => Some(KeyEnd::Expired),
            _ => None,
        }
    }

    /// Returns an error if the key is not good at `now`. Otherwise notes that it was used.
    pub(crate) fn check(&self, now: DateTime<Utc>) -> Result<(), Error> {
        if let Some(error) = self.end_at(now).and_then(KeyEnd::error) {
            return Err(error);
        }
        self.note_use();
        Ok(())
    }

    /// Notes that the key was used.
    pub(crate) fn note_use(&self) {
        // Read first: a line of memory that many threads write would slow all of them down.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Returns an error if the admission of a request has ended since, or is over at `now`. Returns `false` if it
    /// has left the cache: then nobody would tell of a revocation, and the key has to be looked up again.
    pub(crate) fn check_again(&self, now: DateTime<Utc>) -> Result<bool, Error> {
        let Some(end) = self.end_at(now).or_else(|| self.end.get().copied()) else { return Ok(true) };
        end.error().map_or(Ok(false), Err)
    }

    /// Returns whether the key was used since the last call.
    pub(crate) fn take_use(&self) -> bool {
        self.is_used.swap(false, Ordering::Relaxed)
    }

    /// Takes over that the key was used.
    pub(crate) fn adopt_use(&self, former: &Admission) {
        self.is_used.store(former.take_use(), Ordering::Relaxed);
    }

    /// Returns whether the same may be done with both, until the same time.
    pub(crate) fn is_same(&self, other: &Admission) -> bool {
        self.principal == other.principal && self.expires_at == other.expires_at && self.is_revoked == other.is_revoked
    }

    /// Ends all requests that wait under this admission.
    pub(crate) fn finish(&self, end: KeyEnd) {
        let _ = self.end.set(end);
        self.ended.cancel();
    }

    /// Waits until the key ends. Returns why, or `None` if nothing is wrong with it.
    pub(crate) async fn until_ended(&self) -> Option<Error> {
        self.ended.cancelled().await;
        self.end.get().copied().and_then(KeyEnd::error)
    }

    /// Runs a request that may wait. If the key ends meanwhile, the request is dropped: it has no effect from then
    /// on, and what it has claimed at that moment is released. Returns `Ok(None)` if it may end without an error.
    pub fn while_valid<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> impl Future<Output = Result<Option<T>, Error>> {
        // Not an `async` block, which would hold the request twice: thousands of them wait.
        request.with_cancellation_token(&self.ended).map(|result| {
            // The request is polled first, so it may have a result although the key has ended. Dropped here, it is
            // released.
            match (self.end.get().copied().and_then(KeyEnd::error), result) {
                (Some(error), _) => Err(error),
                (None, Some(result)) => result.map(Some),
                (None, None) => Ok(None),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::NamespaceId;

    /// Runs a request that has its result at the moment when the key ends.
    async fn result_at_the_end(end: KeyEnd) -> Result<Option<&'static str>, Error> {
        let admission = Admission::of(Principal::anonymous(NamespaceId(1)));
        let request = async {
            admission.finish(end);
            Ok("an event")
        };
        admission.while_valid(request).await
    }

    #[tokio::test]
    async fn a_result_that_is_ready_when_the_key_ends_is_dropped() {
        assert!(matches!(result_at_the_end(KeyEnd::Revoked).await, Err(Error::KeyRevoked)));
        assert!(matches!(result_at_the_end(KeyEnd::Left).await, Ok(Some("an event"))), "nothing is wrong with the key");
    }
}
