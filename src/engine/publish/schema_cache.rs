//! The schemas that this server has compiled, and the threads on which large payloads are checked.
//!
//! A compiled schema is found by the digest of its text, so it never becomes outdated. Which digest counts for a type is in
//! the snapshot of its namespace.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::domain::event_type::schema::{DEEP_STACK_BYTES, EventSchema};
use crate::domain::ids::NamespaceId;
use crate::error::Error;
use crate::store::tables::event_types::load_event_schemas;

use crate::engine::Engine;

/// The maximum number of schemas that are kept. If there are more, all are dropped.
const MAX_COMPILED: usize = 1_000;

/// Compiled schemas by digest.
pub(crate) type Compiled = HashMap<String, Arc<EventSchema>>;

/// The compiled schemas, and the slots in which schemas are compiled and large payloads are checked.
pub(crate) struct SchemaCache {
    compiled: Mutex<Compiled>,
    /// One per two cores, so that checks do not occupy all cores.
    slots: Arc<Semaphore>,
    /// The turns of the namespaces that use slots or wait for one.
    turns: Mutex<HashMap<NamespaceId, Arc<Semaphore>>>,
    /// The number of slots that a namespace may use or wait for: half of them, and at least one.
    turns_each: usize,
}

/// A slot, and the turn of the namespace that uses it. The slot is freed first, for a namespace that waits already.
pub(crate) struct Slot {
    _slot: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
}

impl Default for SchemaCache {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        SchemaCache::with_slots((cores / 2).max(1))
    }
}

impl SchemaCache {
    fn with_slots(count: usize) -> Self {
        SchemaCache {
            compiled: Mutex::default(),
            slots: Arc::new(Semaphore::new(count)),
            turns: Mutex::default(),
            turns_each: (count / 2).max(1),
        }
    }

    /// Waits for a slot. Those who wait for a turn of their namespace are not in the queue for slots, so that a namespace
    /// with much work does not keep others from theirs.
    async fn slot(&self, namespace: NamespaceId) -> Result<Slot, AcquireError> {
        let turn = self.turns_of(namespace).acquire_owned().await?;
        let slot = self.slots.clone().acquire_owned().await?;
        Ok(Slot { _slot: slot, _turn: turn })
    }

    fn turns_of(&self, namespace: NamespaceId) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Turns that are used or waited for have another owner besides the map.
        turns.retain(|_, turns| Arc::strong_count(turns) > 1);
        turns.entry(namespace).or_insert_with(|| Arc::new(Semaphore::new(self.turns_each))).clone()
    }

    /// Returns the slots for large work.
    pub(crate) fn slots(&self) -> &Arc<Semaphore> {
        &self.slots
    }

    fn get(&self, digest: &str) -> Option<Arc<EventSchema>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }

    pub(crate) fn insert(&self, digest: String, schema: Arc<EventSchema>) {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() >= MAX_COMPILED {
            compiled.clear();
        }
        compiled.insert(digest, schema);
    }
}

impl Engine {
    /// Returns the schemas of event types, given with the digests that they must have. Returns `None` if one of them
    /// has been changed since.
    pub(super) async fn schemas_of(
        &self,
        namespace: NamespaceId,
        digests: &BTreeMap<&str, &str>,
        by: Instant,
    ) -> Result<Option<Compiled>, Error> {
        let mut schemas = Compiled::new();
        let mut missing = Vec::new();
        for (name, digest) in digests {
            match self.schema_cache().get(digest) {
                Some(schema) => drop(schemas.insert((*digest).to_owned(), schema)),
                None => missing.push(*name),
            }
        }
        if missing.is_empty() {
            return Ok(Some(schemas));
        }
        let mut conn = self.database().connection().await?;
        let loaded = load_event_schemas(&mut conn, namespace, &missing).await?;
        drop(conn);
        let mut found = Vec::with_capacity(loaded.len());
        for (name, digest, schema) in loaded {
            let (Some(digest), Some(schema)) = (digest, schema) else { return Ok(None) };
            if digests.get(name.as_str()).copied() != Some(digest.as_str()) {
                return Ok(None);
            }
            found.push((name, digest, schema.0));
        }
        if found.len() < missing.len() {
            return Ok(None);
        }
        let compiled = self.on_deep_stack(namespace, by, move || {
            let compile = |(name, digest, schema): (String, String, crate::domain::json::RawJson)| {
                let unreadable = || Error::Internal(format!("the schema of {name:?} cannot be read by this version"));
                let schema: Value = serde_json::from_str(schema.as_str()).map_err(|_| unreadable())?;
                let schema = EventSchema::parse(&schema).map_err(|_| unreadable())?;
                Ok((digest, Arc::new(schema)))
            };
            found.into_iter().map(compile).collect::<Result<Vec<_>, Error>>()
        });
        for (digest, schema) in compiled.await?? {
            self.schema_cache().insert(digest.clone(), schema.clone());
            schemas.insert(digest, schema);
        }
        Ok(Some(schemas))
    }

    /// Runs work of a namespace that takes long, or recurses deeply, on a thread of its own, as soon as a slot is free.
    /// Fails with [`Error::Overloaded`] if it has not ended by then.
    pub(crate) async fn on_deep_stack<T: Send + 'static>(
        &self,
        namespace: NamespaceId,
        by: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let slot = timeout_at(by, self.schema_cache().slot(namespace)).await;
        let slot =
            slot.map_err(|_| Error::Overloaded)?.map_err(|_| Error::unavailable("the server is stopping".into()))?;
        let (send, receive) = oneshot::channel();
        let thread = thread::Builder::new().name("schema check".into()).stack_size(DEEP_STACK_BYTES);
        let spawned = thread.spawn(move || {
            // The thread may have started late.
            if send.is_closed() {
                return;
            }
            let result = work();
            drop(slot);
            // The caller may have gone.
            let _ = send.send(result);
        });
        spawned.map_err(|error| Error::Internal(format!("no thread could be started: {error}")))?;
        match timeout_at(by, receive).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(Error::Internal("the check of a schema panicked".into())),
            Err(_) => Err(Error::Overloaded),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const LOUD: NamespaceId = NamespaceId(1);
    const QUIET: NamespaceId = NamespaceId(2);

    #[tokio::test]
    async fn a_namespace_with_much_work_does_not_keep_others_waiting() {
        let cache = SchemaCache::with_slots(1);
        let in_use = cache.slot(LOUD).await.unwrap();
        let mut loud: Vec<_> = (0..3).map(|_| Box::pin(cache.slot(LOUD))).collect();
        assert!(loud.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let mut quiet = Box::pin(cache.slot(QUIET));
        assert!((&mut quiet).now_or_never().is_none());
        drop(in_use);
        assert!(loud.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let in_use = (&mut quiet).now_or_never().unwrap().unwrap();
        drop(in_use);
        assert!((&mut loud[0]).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_namespace_has_at_most_half_of_the_slots_and_its_turns_are_forgotten() {
        let cache = SchemaCache::with_slots(4);
        let in_use = (cache.slot(LOUD).await.unwrap(), cache.slot(LOUD).await.unwrap());
        assert!(cache.slot(LOUD).now_or_never().is_none());
        drop(in_use);
        assert!(cache.slot(QUIET).now_or_never().is_some());
        assert!(!cache.turns.lock().unwrap().contains_key(&LOUD));
    }
}
