//! The snapshots of the subscriptions against which this server matches events, one per namespace. The event types
//! against which it checks them are part of the same snapshot.
//!
//! A snapshot has a generation, which each publication names. If the generation is not the present one,
//! the database stores nothing, the snapshot is reloaded and the events are matched again. A snapshot may
//! therefore be outdated, but an outdated one never decides which subscriptions receive an event.
//!
//! Generations are random and have no order: after a restore of the database, an older one may be the present
//! one again. A snapshot is replaced whenever its generation differs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Utc};
use diesel_async::AsyncPgConnection;

use crate::domain::encryption::{Keyring, Owner, StoredText, Unreadable};
use crate::domain::event::NewEvent;
use crate::domain::ids::{NamespaceId, SubscriptionId, SubscriptionKey};
use crate::domain::json::RawJson;
use crate::domain::matching::{Allowance, Budget, Catalog, Stopped, Subject};
use crate::domain::publish_limits::NamespaceLimits;
use crate::domain::scope::Scope;
use crate::domain::subscription::{Credentials, Subscription, SubscriptionSpec};
use crate::error::Error;
use crate::store::tables::catalog::{
    CatalogGeneration, CatalogRow, LoadedCatalog, load_catalog_row, load_catalogs, load_generation, load_generations,
};
use crate::store::tables::events::{FanOut, OverBudget, Push};
use crate::store::tables::latest::Latest;
use crate::store::tables::ready::QueueKey;

use crate::engine::Engine;
use crate::engine::publish::PUSHES_PER_STATEMENT;
use crate::engine::publish::type_catalog::TypeCatalog;

/// The number of catalogs that one statement reads.
const CATALOGS_PER_STATEMENT: usize = 500;

/// Holds the latest subscription snapshots of this server, one per namespace that it has published in or pushes for.
/// There are no more of them than namespaces.
#[derive(Default)]
pub struct SubscriptionCache(RwLock<HashMap<NamespaceId, Arc<Latest<SubscriptionSnapshot>>>>);

/// The active subscriptions of one generation.
pub(crate) struct SubscriptionSnapshot {
    namespace: NamespaceId,
    generation: i64,
    catalog: Catalog,
    by_id: HashMap<SubscriptionId, Subscriber>,
    types: Arc<TypeCatalog>,
    limits: NamespaceLimits,
}

/// A generation that the database never uses.
const NOT_LOADED: i64 = -1;

impl Default for SubscriptionSnapshot {
    /// Returns an empty snapshot that was not loaded.
    fn default() -> Self {
        SubscriptionSnapshot {
            namespace: NamespaceId(0),
            generation: NOT_LOADED,
            catalog: Catalog::new(Vec::new()),
            by_id: HashMap::new(),
            types: Arc::default(),
            limits: NamespaceLimits::default(),
        }
    }
}

/// A subscription with its secrets. Secrets and headers are kept as they are stored, and decrypted for each round of
/// requests.
#[derive(Debug, Clone)]
pub struct Subscriber {
    namespace: NamespaceId,
    pub subscription: Arc<Subscription>,
    /// The secrets to sign with, the present one first, each with the time at which it expires.
    secrets: Arc<Vec<(StoredText, Option<DateTime<Utc>>)>>,
}

impl Subscriber {
    /// Returns what the secrets and headers of the subscription are bound to.
    pub fn owner(&self) -> Owner {
        Owner::Subscription(self.namespace.subscription(self.subscription.id))
    }

    /// Decrypts the headers and the secrets that are in use at `now`.
    pub(crate) fn credentials(&self, keys: &Keyring, now: DateTime<Utc>) -> Result<Credentials, Unreadable> {
        let in_use = |(_, expires_at): &&(StoredText, Option<DateTime<Utc>>)| expires_at.is_none_or(|at| at > now);
        let secrets = self.secrets.iter().filter(in_use).map(|(secret, _)| secret);
        Credentials::decrypt(keys, self.owner(), secrets, &self.subscription.spec)
    }
}

impl SubscriptionCache {
    /// Returns the snapshot of a namespace, or `None` if none was loaded yet.
    pub(crate) fn snapshot(&self, namespace: NamespaceId) -> Option<Arc<SubscriptionSnapshot>> {
        let cached = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // An entry whose first load is under way, or has failed, is empty.
        cached.get(&namespace).map(|latest| latest.get()).filter(|snapshot| snapshot.generation != NOT_LOADED)
    }

    /// Drops all snapshots. One that is being loaded is dropped with the entry that it is loaded for.
    pub(crate) fn forget(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns a subscriber, or `None` if there is no active subscription with this key.
    pub fn get(&self, key: SubscriptionKey) -> Option<Subscriber> {
        self.snapshot(key.namespace)?.by_id.get(&key.id).cloned()
    }

    /// Returns the keys of all active subscriptions of all namespaces.
    pub fn keys(&self) -> Vec<SubscriptionKey> {
        let cached = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let snapshots: Vec<_> = cached.iter().map(|(namespace, latest)| (*namespace, latest.get())).collect();
        drop(cached);
        let keys = |(namespace, snapshot): (NamespaceId, Arc<SubscriptionSnapshot>)| {
            snapshot.by_id.keys().map(|id| namespace.subscription(*id)).collect::<Vec<_>>()
        };
        snapshots.into_iter().flat_map(keys).collect()
    }

    /// Returns the queues of all active subscriptions of all namespaces.
    pub fn queues(&self) -> Vec<QueueKey> {
        self.keys().into_iter().map(QueueKey::of_subscription).collect()
    }

    /// Returns the entry of a namespace, to load it.
    fn entry(&self, namespace: NamespaceId) -> Arc<Latest<SubscriptionSnapshot>> {
        let mut cached = self.0.write().unwrap_or_else(PoisonError::into_inner);
        cached.entry(namespace).or_default().clone()
    }
}

impl SubscriptionSnapshot {
    /// Loads the subscriptions of a namespace that this connection sees, including uncommitted changes of its
    /// transaction.
    pub(crate) async fn load(conn: &mut AsyncPgConnection, namespace: NamespaceId) -> Result<Self, Error> {
        let catalog = load_catalogs(conn, &[namespace]).await?.remove(&namespace).ok_or(diesel::NotFound)?;
        Ok(SubscriptionSnapshot::of(namespace, catalog))
    }

    fn of(namespace: NamespaceId, loaded: LoadedCatalog) -> Self {
        let LoadedCatalog { generation, subscriptions, event_types, is_strict, limits } = loaded;
        let by_id: HashMap<SubscriptionId, Subscriber> =
            subscriptions.into_iter().filter_map(|row| Some((row.id, subscriber(namespace, row)?))).collect();
        let subscriptions = by_id.values().map(|subscriber| subscriber.subscription.clone()).collect();
        let types = Arc::new(TypeCatalog::new(event_types, is_strict));
        SubscriptionSnapshot { namespace, generation, catalog: Catalog::new(subscriptions), by_id, types, limits }
    }

    /// Returns the event types of the same generation.
    pub(crate) fn types(&self) -> &Arc<TypeCatalog> {
        &self.types
    }

    /// Returns the limits of the namespace, of the same generation.
    pub(crate) fn limits(&self) -> &NamespaceLimits {
        &self.limits
    }

    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }

    /// Matches events and returns their pushes. Ends early once there are more pushes than one statement may
    /// create.
    pub(crate) fn fan_out(
        &self,
        events: &[NewEvent],
        time: DateTime<Utc>,
        allowance: &mut Allowance<'_>,
    ) -> Result<FanOut, Stopped> {
        let generations = [(self.namespace, self.generation)].into();
        let mut fan_out = FanOut { generations, ..FanOut::default() };
        if self.by_id.is_empty() {
            return Ok(fan_out);
        }
        let key = |id: SubscriptionId| self.namespace.subscription(id);
        let mut matched: BTreeMap<SubscriptionKey, i32> = BTreeMap::new();
        let mut over_budget: BTreeMap<SubscriptionId, OverBudget> = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            let subject = subject_of(event, time);
            let budget = Budget::of(subject.payload_bytes(), events.len());
            let found = self.catalog.matching(&subject, budget, allowance)?;
            for subscription in found.matched {
                matched.insert(key(subscription.id), subscription.version);
                fan_out.pushes.push(push(index, event, &subject, subscription, allowance)?);
            }
            for Subscription { id, .. } in found.over_budget.into_iter().map(AsRef::as_ref) {
                let first = OverBudget { subscription: key(*id), events: 0, last_event: index };
                let over = over_budget.entry(*id).or_insert(first);
                (over.events, over.last_event) = (over.events + 1, index);
            }
            if fan_out.pushes.len() > PUSHES_PER_STATEMENT {
                break;
            }
        }
        fan_out.subscriptions = matched.into_iter().collect();
        fan_out.over_budget = over_budget.into_values().collect();
        Ok(fan_out)
    }
}

fn subject_of(event: &NewEvent, time: DateTime<Utc>) -> Subject<'_> {
    let payload = event.payload.as_ref().map(RawJson::as_str);
    Subject::new(event.event_type.as_deref(), event.tags.as_slice(), &event.labels, payload, time)
}

fn push(
    event_index: usize,
    event: &NewEvent,
    subject: &Subject<'_>,
    subscription: &Subscription,
    allowance: &mut Allowance<'_>,
) -> Result<Push, Stopped> {
    let SubscriptionSpec { max_attempts, ordering_key_path, .. } = &subscription.spec;
    let payload = if ordering_key_path.is_some() { subject.payload(allowance)? } else { None };
    Ok(Push {
        event: event_index,
        subscription_id: subscription.id,
        max_attempts: *max_attempts,
        ordering_key: subscription.spec.ordering_key(event.ordering_key.as_deref(), payload),
    })
}

impl Engine {
    /// Reloads the snapshots of all namespaces that are outdated. Another server may have changed subscriptions that only
    /// this server dispatches, and a server that does not publish would not notice.
    pub async fn refresh_subscribers(&self) -> Result<(), Error> {
        self.refresh_where(|_| true).await
    }

    /// Reloads those snapshots of these namespaces that are outdated.
    pub(crate) async fn refresh_subscribers_of(&self, namespaces: BTreeSet<NamespaceId>) -> Result<(), Error> {
        self.refresh_where(|namespace| namespaces.contains(&namespace)).await
    }

    async fn refresh_where(&self, is_meant: impl Fn(NamespaceId) -> bool) -> Result<(), Error> {
        let is_outdated = |catalog: &&CatalogGeneration| {
            if !is_meant(catalog.namespace_id) {
                return false;
            }
            let snapshot = self.subscription_cache().snapshot(catalog.namespace_id);
            snapshot.is_none_or(|snapshot| snapshot.generation != catalog.generation)
        };
        let mut conn = self.database().connection().await?;
        let generations = load_generations(&mut conn).await?;
        drop(conn);
        let outdated: Vec<NamespaceId> =
            generations.iter().filter(is_outdated).map(|catalog| catalog.namespace_id).collect();
        self.reload_subscribers(&outdated).await
    }

    /// Reloads the snapshots of namespaces, in one statement for up to [`CATALOGS_PER_STATEMENT`] of them.
    pub async fn reload_subscribers(&self, namespaces: &[NamespaceId]) -> Result<(), Error> {
        for namespaces in namespaces.chunks(CATALOGS_PER_STATEMENT) {
            let mut conn = self.database().connection().await?;
            let begin = |namespace: &NamespaceId| {
                let latest = self.subscription_cache().entry(*namespace);
                let load = latest.begin();
                (*namespace, latest, load)
            };
            let loads: Vec<_> = namespaces.iter().map(begin).collect();
            let mut catalogs = load_catalogs(&mut conn, namespaces).await?;
            for (namespace, latest, load) in loads {
                if let Some(catalog) = catalogs.remove(&namespace) {
                    let snapshot = SubscriptionSnapshot::of(namespace, catalog);
                    latest.finish(load, snapshot);
                    let active = || latest.get().by_id.keys().map(|id| id.0).collect();
                    self.metrics().subscriptions.set(namespace.0, active);
                }
            }
        }
        Ok(())
    }

    /// Reloads the snapshot of a namespace after this server has changed what is in it. Other servers notice the new
    /// generation when they use their snapshot.
    pub(crate) async fn reload_after_change(&self, namespace: NamespaceId) {
        if let Err(error) = self.reload_subscribers(&[namespace]).await {
            log::warn!("the subscriptions could not be reloaded: {error}");
        }
    }

    /// Returns whether a snapshot is of the present generation.
    pub(crate) async fn is_current(&self, snapshot: &SubscriptionSnapshot) -> Result<bool, Error> {
        let mut conn = self.database().connection().await?;
        Ok(load_generation(&mut conn, snapshot.namespace).await? == Some(snapshot.generation))
    }

    /// Returns the snapshot of a namespace. Loads it if this server has none yet.
    pub(crate) async fn subscribers_of(&self, namespace: NamespaceId) -> Result<Arc<SubscriptionSnapshot>, Error> {
        if let Some(snapshot) = self.subscription_cache().snapshot(namespace) {
            return Ok(snapshot);
        }
        // Boxed, because it is rare, and every publish would carry its size.
        Box::pin(self.reload_subscribers(&[namespace])).await?;
        Ok(self.subscription_cache().snapshot(namespace).unwrap_or_default())
    }

    /// Returns a subscription with its secrets, whether it is active or not.
    pub async fn load_subscriber(&self, scope: &Scope, id: SubscriptionId) -> Result<Subscriber, Error> {
        let mut conn = self.database().connection().await?;
        let row = load_catalog_row(&mut conn, scope, id).await?.ok_or(Error::SubscriptionNotFound(id))?;
        let unreadable = || Error::Internal(format!("subscription {id} cannot be read"));
        subscriber(scope.namespace, row).ok_or_else(unreadable)
    }

    /// Decrypts the headers of a subscription, and the secrets that it has in use now.
    pub fn credentials_of(&self, subscriber: &Subscriber) -> Result<Credentials, Unreadable> {
        subscriber.credentials(&self.settings().secret_keys, self.time())
    }
}

/// Returns the subscriber of a row, or `None` if this version cannot read it. A subscription that was written
/// by a later version is left to the servers of that version.
fn subscriber(namespace: NamespaceId, row: CatalogRow) -> Option<Subscriber> {
    let Some(spec) = SubscriptionSpec::from_stored(&row.spec.0) else {
        log::error!(subscription_id = row.id; "a subscription cannot be read by this version");
        return None;
    };
    let secrets = row.secrets.into_iter().map(StoredText::of_secret_column);
    Some(Subscriber {
        namespace,
        subscription: Arc::new(Subscription { id: row.id, version: row.version, spec }),
        secrets: Arc::new(secrets.zip(row.secrets_expire_at).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_whose_first_load_was_interrupted_counts_as_not_loaded() {
        let cache = SubscriptionCache::default();
        drop(cache.entry(NamespaceId(7)));
        assert!(cache.snapshot(NamespaceId(7)).is_none());
    }
}
