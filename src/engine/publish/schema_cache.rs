//! The schemas that this server has compiled, and the threads on which large payloads are checked.
//!
//! A compiled schema is found by the digest of its text, so it never becomes outdated. Which digest counts for a type is in
//! the snapshot of its namespace.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};
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
}

impl Default for SchemaCache {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        SchemaCache { compiled: Mutex::default(), slots: Arc::new(Semaphore::new((cores / 2).max(1))) }
    }
}

impl SchemaCache {
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
        let compiled = self.on_deep_stack(by, move || {
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

    /// Runs work that takes long, or recurses deeply, on a thread of its own, as soon as a slot is free. Fails with
    /// [`Error::Overloaded`] if it has not ended by then.
    pub(crate) async fn on_deep_stack<T: Send + 'static>(
        &self,
        by: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let slot = timeout_at(by, self.schema_slots().clone().acquire_owned()).await;
        let slot =
            slot.map_err(|_| Error::Overloaded)?.map_err(|_| Error::unavailable("the server is stopping".into()))?;
        let (send, receive) = oneshot::channel();
        let thread = thread::Builder::new().name("schema check".into()).stack_size(DEEP_STACK_BYTES);
        let spawned = thread.spawn(move || {
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
