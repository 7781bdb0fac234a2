//! Turns to read pages of the log, for streams that begin further back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::domain::ids::NamespaceId;
use crate::error::Error;

/// The maximum number of streams that read pages of the log at once. The others wait.
const AT_ONCE: usize = 4;

/// The maximum number of them that belong to one namespace, so that it cannot keep the others waiting.
const OF_NAMESPACE: usize = 2;

#[derive(Debug)]
pub(super) struct CatchUps {
    all: Arc<Semaphore>,
    /// The turns of namespaces whose streams read or wait.
    by_namespace: Mutex<HashMap<NamespaceId, Weak<Semaphore>>>,
}

/// The turn of one stream, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_namespace: OwnedSemaphorePermit,
}

impl CatchUps {
    pub(super) fn new() -> Self {
        CatchUps { all: Arc::new(Semaphore::new(AT_ONCE)), by_namespace: Mutex::default() }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self, namespace: NamespaceId) -> Result<Turn, Error> {
        let closed = |error: tokio::sync::AcquireError| Error::Internal(error.to_string());
        let of_namespace = self.of_namespace(namespace).acquire_owned().await.map_err(closed)?;
        let of_all = self.all.clone().acquire_owned().await.map_err(closed)?;
        Ok(Turn { _of_all: of_all, _of_namespace: of_namespace })
    }

    fn of_namespace(&self, namespace: NamespaceId) -> Arc<Semaphore> {
        let mut by_namespace = self.by_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = by_namespace.get(&namespace).and_then(Weak::upgrade) {
            return semaphore;
        }
        by_namespace.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(OF_NAMESPACE));
        by_namespace.insert(namespace, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_namespace_with_many_streams_leaves_turns_for_others() {
        let turns = CatchUps::new();
        let (loud, quiet) = (NamespaceId(1), NamespaceId(2));
        let held = [turns.turn(loud).await.unwrap(), turns.turn(loud).await.unwrap()];
        assert!(turns.turn(loud).now_or_never().is_none());
        assert!(turns.turn(quiet).now_or_never().is_some());
        drop(held);
        assert!(turns.turn(loud).now_or_never().is_some());
        assert!(turns.turn(NamespaceId(3)).now_or_never().is_some());
        assert_eq!(turns.by_namespace.lock().unwrap().len(), 1, "others are forgotten");
    }
}
