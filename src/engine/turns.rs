//! Turns to use the database, shared between namespaces.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::domain::ids::NamespaceId;
use crate::error::Error;

/// A limited number of turns, of which one namespace has only a part, so that it cannot keep the others waiting.
#[derive(Debug)]
pub(crate) struct NamespaceTurns {
    all: Arc<Semaphore>,
    max_of_namespace: usize,
    /// The turns of namespaces that have one or wait for one.
    by_namespace: Mutex<HashMap<NamespaceId, Weak<Semaphore>>>,
}

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_namespace: OwnedSemaphorePermit,
}

impl NamespaceTurns {
    /// Returns `at_once` turns, of which `of_namespace` may belong to the same namespace.
    pub(crate) fn new(at_once: usize, of_namespace: usize) -> Self {
        let all = Arc::new(Semaphore::new(at_once));
        NamespaceTurns { all, max_of_namespace: of_namespace, by_namespace: Mutex::default() }
    }

    /// Waits for a turn. Turns are given in the order of arrival within a namespace.
    pub(crate) async fn turn(&self, namespace: NamespaceId) -> Result<Turn, Error> {
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
        let semaphore = Arc::new(Semaphore::new(self.max_of_namespace));
        by_namespace.insert(namespace, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_namespace_with_many_calls_leaves_turns_for_others() {
        let turns = NamespaceTurns::new(4, 2);
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
