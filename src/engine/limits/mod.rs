//! The limits of namespaces and keys: whether a publish is within them.
//!
//! A publish is checked in memory. Limits are part of the snapshot of the namespace
//! ([`SubscriptionSnapshot`](super::publish::subscription_cache::SubscriptionSnapshot)) or of the caller's key. Rates are
//! token buckets ([`bucket`]), of which each server has its share. What waits and what is stored is counted in the
//! background ([`counts`], [`refresh`]).

mod bucket;
mod counts;
mod permit;
mod refresh;

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::domain::api_key::Principal;
use crate::domain::event::NewEvent;
use crate::domain::ids::{KeyId, NamespaceId};
use crate::domain::publish_limits::{LimitExceeded, LimitName, LimitOwner, NamespaceLimits, PublishRate};
use crate::error::Error;

use super::Engine;
use bucket::{Bucket, Share, seconds};
use counts::{Addition, Counted, Room, Walk};
pub use permit::{CountState, LimitStates, PublishPermit, RateState};
use permit::{Permitted, amounts};

/// The maximum number of keys whose buckets are kept. If there are more, all are full again.
const MAX_KEY_BUCKETS: usize = 50_000;

/// The seconds after which a publisher may try again if too many events wait.
const RETRY_WAITING_AFTER: u64 = 1;

/// The seconds after which a publisher may try again if too much is stored, or a client if it has too much of something.
pub(crate) const RETRY_STORED_AFTER: u64 = 60;

/// What this server knows about the use of limits.
pub struct LimitUse {
    namespaces: RwLock<HashMap<NamespaceId, Arc<NamespaceUse>>>,
    keys: RwLock<HashMap<(NamespaceId, KeyId), Arc<Bucket>>>,
    /// The number of servers that share rates.
    servers: AtomicU32,
    is_count_needed: Notify,
    started: Instant,
}

/// The use of one namespace.
#[derive(Debug, Default)]
struct NamespaceUse {
    bucket: Bucket,
    waiting: Counted,
    stored: Counted,
    walk: Mutex<Walk>,
}

impl Default for LimitUse {
    fn default() -> Self {
        LimitUse {
            namespaces: RwLock::default(),
            keys: RwLock::default(),
            servers: AtomicU32::new(1),
            is_count_needed: Notify::new(),
            started: Instant::now(),
        }
    }
}

impl LimitUse {
    /// Returns the namespaces whose use is known.
    fn namespaces(&self) -> BTreeSet<NamespaceId> {
        self.namespaces.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    fn namespace(&self, namespace: NamespaceId) -> Arc<NamespaceUse> {
        get_or_add(&self.namespaces, namespace, usize::MAX)
    }

    fn key(&self, key: (NamespaceId, KeyId)) -> Arc<Bucket> {
        get_or_add(&self.keys, key, MAX_KEY_BUCKETS)
    }

    /// Returns the number of servers that share rates.
    pub fn servers(&self) -> u32 {
        self.servers.load(Ordering::Relaxed)
    }

    /// Has everything counted soon: limits have changed, or a namespace may be near one.
    pub(crate) fn need_count(&self) {
        self.is_count_needed.notify_one();
    }

    /// Waits until everything has to be counted soon.
    pub async fn count_needed(&self) {
        self.is_count_needed.notified().await;
    }
}

/// Returns what a map has for a key. Adds it if it is missing; if there are `max` already, all are dropped first.
fn get_or_add<K: Eq + Hash, V: Default>(map: &RwLock<HashMap<K, Arc<V>>>, key: K, max: usize) -> Arc<V> {
    if let Some(found) = map.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return found.clone();
    }
    let mut map = map.write().unwrap_or_else(PoisonError::into_inner);
    if map.len() >= max {
        map.clear();
    }
    map.entry(key).or_default().clone()
}

/// A bucket, and what may be taken from it.
struct Source {
    owner: LimitOwner,
    rate: PublishRate,
    bucket: BucketOf,
}

enum BucketOf {
    Namespace(Arc<NamespaceUse>),
    Key(Arc<Bucket>),
}

impl Source {
    fn bucket(&self) -> &Bucket {
        match &self.bucket {
            BucketOf::Namespace(namespace) => &namespace.bucket,
            BucketOf::Key(bucket) => bucket,
        }
    }

    fn state(&self, share: Share, missing: i64) -> RateState {
        RateState { owner: self.owner, rate: self.rate, available: share.available(missing), full_in: seconds(missing) }
    }
}

impl Engine {
    /// Checks that a publish is within the limits of its namespace and of the caller's key, and counts it.
    pub async fn admit_publish(
        &self,
        namespace: NamespaceId,
        caller: Option<&Principal>,
        events: &[NewEvent],
    ) -> Result<PublishPermit, Error> {
        let snapshot = self.subscribers_of(namespace).await?;
        let limits = snapshot.limits();
        let has_rate = caller.is_some_and(|caller| caller.publish_rate.is_some());
        if !limits.concern_publishes() && !has_rate {
            return Ok(PublishPermit::default());
        }
        let permitted = self.admit_limited(namespace, limits, caller, events);
        let permitted = permitted.inspect_err(|_| {
            self.metrics().publishes_limited.inc();
        })?;
        Ok(PublishPermit::of(permitted))
    }

    fn admit_limited(
        &self,
        namespace: NamespaceId,
        limits: &NamespaceLimits,
        caller: Option<&Principal>,
        events: &[NewEvent],
    ) -> Result<Permitted, LimitExceeded> {
        let addition = self.enter(namespace, limits, events)?;
        let (sources, servers) = (self.rate_sources(namespace, limits, caller), self.limit_use().servers());
        let mut rates = Vec::with_capacity(sources.len());
        for (index, source) in sources.iter().enumerate() {
            let share = Share::of(source.rate, servers);
            match source.bucket().take(share, self.nanos(), events.len()) {
                Ok(missing) => rates.push(source.state(share, missing)),
                Err(wait) => {
                    for former in &sources[..index] {
                        former.bucket().give_back(Share::of(former.rate, servers), events.len());
                    }
                    let retry_after = seconds(wait).max(1);
                    return Err(LimitExceeded {
                        limit: LimitName::PublishesPerSecond,
                        owner: source.owner,
                        retry_after,
                    });
                }
            }
        }
        Ok(Permitted { rates, addition })
    }

    /// Enters events into the counts of their namespace.
    fn enter(
        &self,
        namespace: NamespaceId,
        limits: &NamespaceLimits,
        events: &[NewEvent],
    ) -> Result<Option<Addition>, LimitExceeded> {
        if limits.waiting_events.is_none() && limits.stored_bytes.is_none() {
            return Ok(None);
        }
        let (waiting, bytes) = amounts(events);
        let room = Addition::enter(
            self.limit_use().namespace(namespace),
            (limits.waiting_events, waiting),
            (limits.stored_bytes, bytes),
        );
        match room {
            Room::Given { addition, is_uncertain } => {
                if is_uncertain {
                    self.limit_use().need_count();
                }
                Ok(Some(addition))
            }
            Room::NoneForEvents => {
                self.limit_use().need_count();
                Err(LimitExceeded::of_namespace(LimitName::WaitingEvents, RETRY_WAITING_AFTER))
            }
            Room::NoneForBytes => Err(LimitExceeded::of_namespace(LimitName::StoredBytes, RETRY_STORED_AFTER)),
        }
    }

    /// Returns the buckets from which a publish takes.
    fn rate_sources(
        &self,
        namespace: NamespaceId,
        limits: &NamespaceLimits,
        caller: Option<&Principal>,
    ) -> Vec<Source> {
        let of_key = caller.and_then(|caller| {
            let key = (caller.namespace, caller.key_id?);
            let bucket = BucketOf::Key(self.limit_use().key(key));
            Some(Source { owner: LimitOwner::Key, rate: caller.publish_rate?, bucket })
        });
        let of_namespace = limits.rate().map(|rate| {
            let bucket = BucketOf::Namespace(self.limit_use().namespace(namespace));
            Source { owner: LimitOwner::Namespace, rate, bucket }
        });
        of_namespace.into_iter().chain(of_key).collect()
    }

    /// Returns where the limits of a namespace and of the caller's key stand.
    pub async fn limit_states(&self, namespace: NamespaceId, caller: &Principal) -> Result<LimitStates, Error> {
        let snapshot = self.subscribers_of(namespace).await?;
        let (limits, servers) = (snapshot.limits(), self.limit_use().servers());
        let sources = self.rate_sources(namespace, limits, Some(caller));
        let state_of = |owner: LimitOwner| {
            let source = sources.iter().find(|source| source.owner == owner)?;
            Some(source.state(Share::of(source.rate, servers), source.bucket().missing(self.nanos())))
        };
        let used = self.limit_use().namespace(namespace);
        let count = |limit: Option<i64>, counted: &Counted| CountState { limit, used: limit.map(|_| counted.used()) };
        Ok(LimitStates {
            namespace_rate: state_of(LimitOwner::Namespace),
            key_rate: state_of(LimitOwner::Key),
            waiting_events: count(limits.waiting_events, &used.waiting),
            stored_bytes: count(limits.stored_bytes, &used.stored),
            subscriptions: limits.subscriptions,
            sources: limits.sources,
        })
    }

    /// Returns a time in nanoseconds that never goes back, or that of a fixed clock.
    fn nanos(&self) -> i64 {
        match self.now() {
            Some(time) => time.timestamp_nanos_opt().unwrap_or_default(),
            None => i64::try_from(self.limit_use().started.elapsed().as_nanos()).unwrap_or(i64::MAX),
        }
    }
}
