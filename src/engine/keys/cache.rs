//! The keys that this server has in memory. A request with one of them costs no statement.
//!
//! The cache is as old as its last comparison with the catalog of keys in the database, which happens at every
//! notification about keys and once per poll interval ([`super::Engine::refresh_keys`]). A key that was read under
//! another generation of the catalog than the cache has is never added: it may have been changed in between.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::{Notify, Semaphore};

use super::admission::{Admission, KeyEnd};
use super::guesses::{Guesses, Reserve};
use super::logins::Logins;
use crate::domain::api_key::{KeyHash, Principal};
use crate::domain::ids::{KeyId, NamespaceId};
use crate::store::tables::api_keys::{KeyRow, LoadedKeys};

/// The maximum number of keys in memory.
const MAX_KEYS: usize = 50_000;

/// The maximum number of unknown keys that are remembered as such.
const MAX_UNKNOWN: usize = 10_000;

/// The time for which an unknown key is remembered as such.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// The time for which keys in memory are good while the database is away.
const TRUSTED_FOR: Duration = Duration::from_secs(300);

/// The maximum number of unknown keys that are looked up at once.
const LOOK_UPS_AT_ONCE: usize = 2;

/// The number of keys that are considered when one has to leave.
const EVICTION_CANDIDATES: usize = 16;

/// The keys of one server.
pub struct KeyCache {
    state: RwLock<CacheState>,
    pub(super) guesses: Guesses,
    pub(super) reserve: Reserve,
    pub(super) logins: Logins,
    pub(super) look_ups: Semaphore,
    /// Held while the keys are compared with the database, so that an older comparison never replaces a newer one.
    pub(super) refreshing: tokio::sync::Mutex<()>,
    changed: Notify,
}

struct CacheState {
    /// The generation of the catalog that everything here belongs to.
    generation: i64,
    /// When the cache was last known to be up to date.
    verified_at: Instant,
    is_required: bool,
    /// Whether requests without a key may ever be let in.
    may_open: bool,
    /// Whether the database says that no key is required, and this server does not follow.
    is_opening_refused: bool,
    /// What requests without a key are admitted with, while none is required.
    anonymous: Arc<Admission>,
    keys: HashMap<KeyHash, Arc<Admission>>,
    unknown: HashMap<KeyHash, Instant>,
}

/// What the cache says about a request.
pub(crate) enum Found {
    Admission(Arc<Admission>),
    /// The key is not known, or was not when the database was last asked.
    Unknown,
    /// The key is not in memory.
    NotCached,
    /// The cache has not been compared with the database for too long.
    Outdated,
}

impl Default for KeyCache {
    fn default() -> Self {
        let anonymous = Arc::new(Admission::of(Principal::anonymous(NamespaceId::DEFAULT)));
        KeyCache {
            // Before the first comparison nobody is let in without a key.
            state: RwLock::new(CacheState {
                generation: -1,
                verified_at: Instant::now(),
                is_required: true,
                may_open: true,
                is_opening_refused: false,
                anonymous,
                keys: HashMap::new(),
                unknown: HashMap::new(),
            }),
            guesses: Guesses::default(),
            reserve: Reserve::default(),
            logins: Logins::default(),
            look_ups: Semaphore::new(LOOK_UPS_AT_ONCE),
            refreshing: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl KeyCache {
    /// Returns whether requests must carry a key.
    pub fn is_required(&self) -> bool {
        self.read().is_required
    }

    /// Has keys required from now on, whatever the database says: it may be replaced by one without keys.
    pub fn stay_closed(&self) {
        self.write().may_open = false;
    }

    pub(super) fn generation(&self) -> i64 {
        self.read().generation
    }

    /// Looks up a key, or a request without one.
    pub(super) fn find(&self, key: Option<KeyHash>) -> Found {
        let state = self.read();
        if state.verified_at.elapsed() > TRUSTED_FOR {
            return Found::Outdated;
        }
        let Some(hash) = key else {
            return if state.is_required { Found::Unknown } else { Found::Admission(state.anonymous.clone()) };
        };
        if let Some(admission) = state.keys.get(&hash) {
            return Found::Admission(admission.clone());
        }
        match state.unknown.get(&hash) {
            Some(at) if at.elapsed() < UNKNOWN_FOR => match state.is_required {
                true => Found::Unknown,
                false => Found::Admission(state.anonymous.clone()),
            },
            _ => Found::NotCached,
        }
    }

    /// Adds what a look-up has found. Returns `false` if it was read under another generation: then the cache has to
    /// be compared with the database first.
    pub(super) fn add(&self, hash: KeyHash, loaded: LoadedKeys) -> bool {
        let mut state = self.write();
        if state.generation != loaded.generation {
            return false;
        }
        match loaded.keys.into_iter().find(|row| row.hash == hash) {
            Some(row) => state.insert(row),
            None => state.insert_unknown(hash),
        }
        true
    }

    /// Returns the hashes of all keys in memory.
    pub(super) fn hashes(&self) -> Vec<KeyHash> {
        self.read().keys.keys().copied().collect()
    }

    /// Replaces everything with what was read for `asked`, and ends the requests of keys that are no longer good.
    /// Returns `false` if keys were added since: then they have to be read, too.
    pub(super) fn replace(&self, asked: &[KeyHash], loaded: LoadedKeys, now: DateTime<Utc>) -> bool {
        let mut state = self.write();
        let has_changed = state.generation != loaded.generation;
        let asked: HashSet<&KeyHash> = asked.iter().collect();
        if has_changed && !state.keys.keys().all(|hash| asked.contains(hash)) {
            return false;
        }
        state.verified_at = Instant::now();
        if has_changed {
            state.generation = loaded.generation;
            state.unknown.clear();
            state.set_required(loaded.is_required);
            let mut rows: HashMap<KeyHash, KeyRow> = loaded.keys.into_iter().map(|row| (row.hash, row)).collect();
            state.keys.retain(|hash, admission| {
                let row = rows.remove(hash);
                let is_known = row.is_some();
                match row {
                    Some(row) => replace_if_changed(admission, row, now),
                    None => admission.finish(KeyEnd::Unknown),
                }
                is_known
            });
        }
        state.finish_ended(now);
        true
    }

    /// Notes that the generation is still the one of the cache.
    pub(super) fn confirm(&self, now: DateTime<Utc>) {
        let mut state = self.write();
        state.verified_at = Instant::now();
        state.finish_ended(now);
    }

    /// Forgets all keys, because another history of the database has begun: it may not know them, or have given their
    /// namespaces' ids to others.
    pub(crate) fn forget(&self) {
        let mut state = self.write();
        state.generation = -1;
        state.unknown.clear();
        state.keys.drain().for_each(|(_, admission)| admission.finish(KeyEnd::Left));
        drop(state);
        self.note_change();
    }

    /// Has the cache compared with the database soon.
    pub fn note_change(&self) {
        self.changed.notify_one();
    }

    /// Waits until the keys have changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the keys that were used since the last call.
    pub(super) fn take_used(&self) -> Vec<(NamespaceId, KeyId)> {
        let state = self.read();
        let used = state.keys.values().filter(|admission| admission.take_use());
        let ids = used.filter_map(|admission| Some((admission.principal().namespace, admission.principal().key_id?)));
        let mut ids: Vec<(NamespaceId, KeyId)> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Notes again that keys were used, because that could not be recorded. `used` is sorted.
    pub(super) fn put_back_used(&self, used: &[(NamespaceId, KeyId)]) {
        for admission in self.read().keys.values() {
            let principal = admission.principal();
            if principal.key_id.is_some_and(|id| used.binary_search(&(principal.namespace, id)).is_ok()) {
                admission.note_use();
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, CacheState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, CacheState> {
        // No code panics between two related changes, so the state is consistent even if the lock is poisoned.
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a key that has changed in the place of its former self, and ends the requests of the latter.
fn replace_if_changed(admission: &mut Arc<Admission>, row: KeyRow, now: DateTime<Utc>) {
    let present = Admission::of_key(row);
    if !present.is_same(admission) {
        present.adopt_use(admission);
        admission.finish(present.end_at(now).unwrap_or(KeyEnd::Left));
        *admission = Arc::new(present);
    }
}

impl CacheState {
    fn insert(&mut self, row: KeyRow) {
        // Two requests may have looked up the same key. The first admission stays: requests may wait under it already,
        // and would not be told of a revocation if it were replaced.
        if self.keys.contains_key(&row.hash) {
            return;
        }
        if self.keys.len() >= MAX_KEYS {
            self.evict();
        }
        self.keys.insert(row.hash, Arc::new(Admission::of_key(row)));
    }

    /// Removes a key, if possible one that no request uses at the moment.
    fn evict(&mut self) {
        let mut candidates = self.keys.iter().take(EVICTION_CANDIDATES);
        let idle = candidates.clone().find(|(_, admission)| Arc::strong_count(admission) == 1);
        let Some(hash) = idle.or_else(|| candidates.next()).map(|(hash, _)| *hash) else { return };
        if let Some(admission) = self.keys.remove(&hash) {
            // Nobody would tell the requests that wait under it of a revocation.
            admission.finish(KeyEnd::Left);
        }
    }

    fn insert_unknown(&mut self, hash: KeyHash) {
        if self.unknown.len() >= MAX_UNKNOWN {
            self.unknown.retain(|_, at| at.elapsed() < UNKNOWN_FOR);
        }
        if self.unknown.len() < MAX_UNKNOWN {
            self.unknown.insert(hash, Instant::now());
        }
    }

    fn set_required(&mut self, is_required: bool) {
        let is_refused = !is_required && self.is_required && !self.may_open;
        if is_refused && !self.is_opening_refused {
            log::error!(
                "the database has no API key any more. Others can reach this server, so it still requires one. Was the \
                 database replaced? Make a key with waybill keys create --bootstrap, or start again with --open"
            );
        }
        self.is_opening_refused = is_refused;
        if is_refused {
            return;
        }
        if is_required && !self.is_required {
            // Those who wait without a key have to come again with one.
            self.anonymous.finish(KeyEnd::Unknown);
        }
        if !is_required && self.is_required {
            self.anonymous = Arc::new(Admission::of(Principal::anonymous(NamespaceId::DEFAULT)));
        }
        self.is_required = is_required;
    }

    /// Ends the requests that wait under keys whose time is over.
    fn finish_ended(&self, now: DateTime<Utc>) {
        for admission in self.keys.values() {
            if let Some(end) = admission.end_at(now) {
                admission.finish(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::api_key::KeyScopes;

    fn loaded(keys: Vec<KeyRow>) -> LoadedKeys {
        LoadedKeys { generation: -1, is_required: true, keys }
    }

    fn key(hash: KeyHash) -> KeyRow {
        KeyRow {
            hash,
            id: KeyId(1),
            namespace_id: NamespaceId::DEFAULT,
            name: "deploy".into(),
            scopes: KeyScopes::of([]),
            tag_patterns: None,
            expires_at: None,
            revoked_at: None,
            publish_rate: None,
        }
    }

    #[test]
    fn a_key_that_two_requests_look_up_has_one_admission() {
        let (cache, hash) = (KeyCache::default(), KeyHash([7; 32]));
        let find = || match cache.find(Some(hash)) {
            Found::Admission(admission) => admission,
            _ => panic!("the key is in memory"),
        };
        assert!(cache.add(hash, loaded(vec![key(hash)])));
        let first = find();
        assert!(cache.add(hash, loaded(vec![key(hash)])));
        assert!(Arc::ptr_eq(&first, &find()));
    }

    #[test]
    fn a_use_that_could_not_be_recorded_is_returned_again() {
        let (cache, hash) = (KeyCache::default(), KeyHash([7; 32]));
        assert!(cache.add(hash, loaded(vec![key(hash)])));
        let Found::Admission(admission) = cache.find(Some(hash)) else { panic!("the key is in memory") };
        admission.check(Utc::now()).unwrap();
        let used = cache.take_used();
        assert_eq!((used.len(), cache.take_used()), (1, Vec::new()));
        cache.put_back_used(&used);
        assert_eq!(cache.take_used(), used);
    }

    /// Compares a cache with a database that has no keys in memory of this server.
    fn compare(cache: &KeyCache, generation: i64, is_required: bool) {
        assert!(cache.replace(&[], LoadedKeys { generation, is_required, keys: Vec::new() }, Utc::now()));
        assert_eq!(cache.generation(), generation);
    }

    #[test]
    fn a_server_that_must_stay_closed_does_not_open_when_its_database_has_no_keys_any_more() {
        let cache = KeyCache::default();
        compare(&cache, 1, true);
        cache.stay_closed();
        for generation in 2..4 {
            compare(&cache, generation, false);
            assert!(cache.is_required() && cache.read().is_opening_refused);
            assert!(matches!(cache.find(None), Found::Unknown));
        }
        compare(&cache, 4, true);
        assert!(cache.is_required() && !cache.read().is_opening_refused, "the next time is logged again");
    }

    #[test]
    fn a_server_that_may_be_open_follows_its_database() {
        let cache = KeyCache::default();
        for (generation, is_required) in [(1, false), (2, true), (3, false)] {
            compare(&cache, generation, is_required);
            assert_eq!(cache.is_required(), is_required);
            assert_eq!(matches!(cache.find(None), Found::Admission(_)), !is_required);
        }
    }
}
