//! The sources that this server has in memory. A webhook of one of them costs no statement but that which stores it.
//!
//! The cache is as old as its last comparison with the catalog of sources in the database, which happens at every
//! notification about sources and once per poll interval. A source that was read under another generation of the
//! catalog than the cache has is never added: it may have been changed in between. While the database is away, the cache
//! stays as it is: no webhook is accepted then anyway.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};

use super::source::Source;
use crate::domain::encryption::Keyring;
use crate::domain::source::TokenHash;
use crate::engine::keys::Guesses;
use crate::store::tables::sources::LoadedSources;

/// The maximum number of sources in memory.
const MAX_SOURCES: usize = 10_000;

/// The maximum number of unknown tokens that are remembered as such.
const MAX_UNKNOWN: usize = 10_000;

/// The time for which an unknown token is remembered as such. A new generation of the catalog ends it earlier.
const UNKNOWN_FOR: Duration = Duration::from_secs(60);

/// The maximum number of tokens that are looked up at once.
const LOOK_UPS_AT_ONCE: usize = 2;

/// The sources of one server.
pub struct SourceCache {
    state: RwLock<CacheState>,
    pub(super) guesses: Guesses,
    pub(super) look_ups: Semaphore,
    /// Held while the sources are compared with the database, so that an older comparison never replaces a newer one.
    pub(super) refreshing: tokio::sync::Mutex<()>,
    changed: Notify,
}

struct CacheState {
    /// The generation of the catalog that everything here belongs to.
    generation: i64,
    sources: HashMap<TokenHash, Arc<Source>>,
    unknown: HashMap<TokenHash, Instant>,
}

/// What the cache says about a token.
pub(super) enum Found {
    Source(Arc<Source>),
    /// No active source has it, or none had when the database was last asked.
    Unknown,
    /// The database must be asked.
    NotCached,
}

impl Default for SourceCache {
    fn default() -> Self {
        let state = CacheState { generation: -1, sources: HashMap::new(), unknown: HashMap::new() };
        SourceCache {
            state: RwLock::new(state),
            guesses: Guesses::default(),
            look_ups: Semaphore::new(LOOK_UPS_AT_ONCE),
            refreshing: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl SourceCache {
    pub(super) fn generation(&self) -> i64 {
        self.read().generation
    }

    /// Returns whether the cache knows nothing, not even an unknown token.
    pub fn is_empty(&self) -> bool {
        let state = self.read();
        state.sources.is_empty() && state.unknown.is_empty()
    }

    /// Looks up a token.
    pub(super) fn find(&self, hash: TokenHash) -> Found {
        let state = self.read();
        match (state.sources.get(&hash), state.unknown.get(&hash)) {
            (Some(source), _) => Found::Source(source.clone()),
            (None, Some(at)) if at.elapsed() < UNKNOWN_FOR => Found::Unknown,
            (None, _) => Found::NotCached,
        }
    }

    /// Adds what a look-up has found. Returns `false` if it was read under another generation: then the cache has to
    /// be compared with the database first.
    pub(super) fn add(&self, hash: TokenHash, mut loaded: LoadedSources, keys: &Keyring) -> bool {
        let found = loaded.sources.remove(&hash).map(|source| Arc::new(Source::of(source, keys)));
        let mut state = self.write();
        if state.generation != loaded.generation {
            return false;
        }
        match found {
            Some(source) => state.insert(hash, source),
            None => state.insert_unknown(hash),
        }
        true
    }

    /// Returns the hashes of the tokens of all sources in memory.
    pub(super) fn hashes(&self) -> Vec<TokenHash> {
        self.read().sources.keys().copied().collect()
    }

    /// Replaces everything with what was read for `asked`. Returns `false` if sources were added since: then they have
    /// to be read, too.
    pub(super) fn replace(&self, asked: &[TokenHash], loaded: LoadedSources, keys: &Keyring) -> bool {
        let sources = loaded.sources.into_iter().map(|(hash, source)| (hash, Arc::new(Source::of(source, keys))));
        let sources = sources.collect();
        let asked: HashSet<&TokenHash> = asked.iter().collect();
        let mut state = self.write();
        if state.generation != loaded.generation && !state.sources.keys().all(|hash| asked.contains(hash)) {
            return false;
        }
        *state = CacheState { generation: loaded.generation, sources, unknown: HashMap::new() };
        true
    }

    /// Forgets everything, because another history of the database has begun.
    pub(crate) fn forget(&self) {
        *self.write() = CacheState { generation: -1, sources: HashMap::new(), unknown: HashMap::new() };
        self.note_change();
    }

    /// Has the cache compared with the database soon.
    pub fn note_change(&self) {
        self.changed.notify_one();
    }

    /// Waits until the sources have changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn read(&self) -> RwLockReadGuard<'_, CacheState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, CacheState> {
        // No code panics between two related changes, so the state is consistent even if the lock is poisoned.
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn insert(&mut self, hash: TokenHash, source: Arc<Source>) {
        if self.sources.len() >= MAX_SOURCES
            && let Some(evicted) = self.sources.keys().next().copied()
        {
            self.sources.remove(&evicted);
        }
        self.sources.insert(hash, source);
    }

    fn insert_unknown(&mut self, hash: TokenHash) {
        if self.unknown.len() >= MAX_UNKNOWN {
            self.unknown.retain(|_, at| at.elapsed() < UNKNOWN_FOR);
        }
        if self.unknown.len() < MAX_UNKNOWN {
            self.unknown.insert(hash, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{NamespaceId, SourceId};
    use crate::domain::json::RawJson;
    use crate::store::tables::sources::LoadedSource;

    fn loaded(generation: i64, hashes: &[TokenHash]) -> LoadedSources {
        let source = |hash: &TokenHash| {
            let spec = RawJson::of(&serde_json::json!({"name": "a", "verify": {"scheme": "none"}})).unwrap();
            (*hash, LoadedSource { key: NamespaceId(1).source(SourceId(7)), spec, secrets: Vec::new() })
        };
        LoadedSources { generation, sources: hashes.iter().map(source).collect() }
    }

    fn hash(number: u32) -> TokenHash {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        TokenHash(bytes)
    }

    #[test]
    fn what_was_read_under_another_generation_is_not_added() {
        let (cache, keys) = (SourceCache::default(), Keyring::default());
        assert!(cache.replace(&[], loaded(1, &[]), &keys));
        assert!(!cache.add(hash(1), loaded(2, &[hash(1)]), &keys));
        assert!(matches!(cache.find(hash(1)), Found::NotCached));
        assert!(cache.add(hash(1), loaded(1, &[hash(1)]), &keys));
        assert!(!cache.replace(&[], loaded(2, &[]), &keys), "a source was added that was not read again");
        assert!(cache.replace(&[hash(1)], loaded(2, &[]), &keys));
        assert!(matches!(cache.find(hash(1)), Found::NotCached), "it may have come back since");
    }

    #[test]
    fn memory_is_bounded() {
        let (cache, keys) = (SourceCache::default(), Keyring::default());
        assert!(cache.replace(&[], loaded(1, &[]), &keys));
        for number in 0..(MAX_UNKNOWN as u32 + 10) {
            assert!(cache.add(hash(number), loaded(1, &[]), &keys));
            let known = hash(number + 1_000_000);
            assert!(cache.add(known, loaded(1, &[known]), &keys));
        }
        let state = cache.read();
        assert_eq!((state.sources.len(), state.unknown.len()), (MAX_SOURCES, MAX_UNKNOWN));
    }
}
