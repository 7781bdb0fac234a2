//! The namespace that was dominant lately in one of the batchers that share a limiter.
//!
//! A namespace that publishes far more than others usually works as much, but claims and settles in batches that are not
//! always large. What one batcher finds therefore counts for all.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ids::NamespaceId;

/// The time for which a namespace counts as dominant after a quiet one was found beside it.
const DOMINANT_FOR: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Dominance(Mutex<Option<(NamespaceId, Instant)>>);

impl Dominance {
    /// Notes that a namespace is dominant.
    pub(super) fn note(&self, namespace: NamespaceId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((namespace, Instant::now()));
    }

    /// Returns the namespace that was dominant lately, if there was one.
    pub(super) fn namespace(&self) -> Option<NamespaceId> {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.filter(|(_, at)| at.elapsed() < DOMINANT_FOR).map(|(namespace, _)| namespace)
    }
}
