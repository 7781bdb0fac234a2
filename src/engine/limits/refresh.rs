//! What limits need from the database, once per second: which there are, how many servers share them, and counts.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::domain::ids::NamespaceId;
use crate::domain::publish_limits::NamespaceLimits;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::limits::{count_waiting_events, load_limits, measure_payloads, note_server};

use super::NamespaceUse;
use super::counts::Walk;

/// The time without a sign after which a server no longer counts, in seconds.
const ALIVE_SECONDS: f64 = 5.0;

/// The time after which the row of a server is removed, in seconds.
const KEPT_SECONDS: f64 = 3_600.0;

/// The number of namespaces whose waiting events one statement counts.
const NAMESPACES_PER_STATEMENT: usize = 500;

/// The number of events of a namespace whose payloads a round adds up.
const EVENTS_PER_ROUND: i64 = 20_000;

impl NamespaceUse {
    /// Forgets the payloads that were added up. If they are limited again, a count of long ago must not refuse anything.
    fn forget_stored(&self) {
        self.stored.reset();
        *self.walk.lock().unwrap_or_else(PoisonError::into_inner) = Walk::default();
    }
}

impl Engine {
    /// Renews what this server knows about limits. Costs one small statement if nothing is limited.
    pub(crate) async fn refresh_limits(&self) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        let loaded = load_limits(&mut conn).await?;
        let has_rates = loaded.has_keys || loaded.namespaces.values().any(|limits| limits.rate().is_some());
        let servers = match has_rates {
            true => note_server(&mut conn, self.instance(), self.now(), ALIVE_SECONDS, KEPT_SECONDS).await?,
            false => 1,
        };
        drop(conn);
        self.limit_use().servers.store(u32::try_from(servers).unwrap_or(1), Ordering::Relaxed);
        self.reload_limits(&loaded.namespaces).await?;
        self.count_waiting(&loaded.namespaces).await?;
        let is_measured = |namespace: &NamespaceId| {
            loaded.namespaces.get(namespace).is_some_and(|limits| limits.stored_bytes.is_some())
        };
        for namespace in self.limit_use().namespaces().into_iter().filter(|namespace| !is_measured(namespace)) {
            self.limit_use().namespace(namespace).forget_stored();
        }
        for namespace in loaded.namespaces.keys().copied().filter(is_measured) {
            self.measure_stored(namespace).await?;
        }
        Ok(())
    }

    /// Reloads the snapshots whose limits have changed. A server that refuses all publishes would not notice otherwise.
    async fn reload_limits(&self, loaded: &BTreeMap<NamespaceId, NamespaceLimits>) -> Result<(), Error> {
        let mut namespaces = self.limit_use().namespaces();
        namespaces.extend(loaded.keys());
        let has_changed = |namespace: &NamespaceId| {
            let snapshot = self.subscription_cache().snapshot(*namespace);
            let limits = loaded.get(namespace).cloned().unwrap_or_default();
            snapshot.is_some_and(|snapshot| *snapshot.limits() != limits)
        };
        let changed: Vec<NamespaceId> = namespaces.into_iter().filter(has_changed).collect();
        match changed.is_empty() {
            true => Ok(()),
            false => self.reload_subscribers(&changed).await,
        }
    }

    async fn count_waiting(&self, loaded: &BTreeMap<NamespaceId, NamespaceLimits>) -> Result<(), Error> {
        let limited = loaded.iter().filter_map(|(namespace, limits)| Some((*namespace, limits.waiting_events?)));
        let limited: Vec<(NamespaceId, i64)> = limited.collect();
        for limited in limited.chunks(NAMESPACES_PER_STATEMENT) {
            let included: BTreeMap<NamespaceId, i64> = limited
                .iter()
                .map(|(namespace, _)| (*namespace, self.limit_use().namespace(*namespace).waiting.begin()))
                .collect();
            let mut conn = self.database().connection().await?;
            let counts = count_waiting_events(&mut conn, limited).await?;
            drop(conn);
            for (namespace, waiting) in counts {
                let included = included.get(&namespace).copied().unwrap_or_default();
                self.limit_use().namespace(namespace).waiting.finish(waiting, included);
            }
        }
        Ok(())
    }

    /// Goes one step further in adding up the payloads of a namespace.
    async fn measure_stored(&self, namespace: NamespaceId) -> Result<(), Error> {
        let used = self.limit_use().namespace(namespace);
        let walk = *used.walk.lock().unwrap_or_else(PoisonError::into_inner);
        let included = used.stored.begin();
        let mut conn = self.database().connection().await?;
        let measured = measure_payloads(&mut conn, namespace, walk.after, EVENTS_PER_ROUND).await?;
        let bytes = walk.bytes.saturating_add(measured.bytes);
        let is_end = measured.events < EVENTS_PER_ROUND;
        if is_end {
            used.stored.finish(bytes, included);
        }
        let next = if is_end { Walk::default() } else { Walk { after: measured.last_id, bytes } };
        *used.walk.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}
