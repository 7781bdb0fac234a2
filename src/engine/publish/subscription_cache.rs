//! The snapshot of the subscriptions against which this server matches events.
//!
//! A snapshot has a generation, which each publication names. If the generation is not the present one,
//! the database stores nothing, the snapshot is reloaded and the events are matched again. A snapshot may
//! therefore be outdated, but an outdated one never decides which subscriptions receive an event.
//!
//! Generations are random and have no order: after a restore of the database, an older one may be the present
//! one again. A snapshot is replaced whenever its generation differs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use diesel_async::AsyncPgConnection;

use crate::domain::event::NewEvent;
use crate::domain::ids::SubscriptionId;
use crate::domain::json::RawJson;
use crate::domain::matching::{Allowance, Budget, Catalog, Stopped, Subject};
use crate::domain::scope::Scope;
use crate::domain::signature::Secret;
use crate::domain::subscription::{Subscription, SubscriptionSpec};
use crate::error::Error;
use crate::store::tables::catalog::{CatalogRow, load_catalog, load_catalog_row, load_generation};
use crate::store::tables::events::{FanOut, OverBudget, Push};
use crate::store::tables::latest::Latest;
use crate::store::tables::ready::queue_of_subscription;

use crate::engine::Engine;
use crate::engine::publish::PUSHES_PER_STATEMENT;

/// Holds the latest subscription snapshot of this server.
#[derive(Default)]
pub struct SubscriptionCache(Latest<SubscriptionSnapshot>);

/// The active subscriptions of one generation.
pub(crate) struct SubscriptionSnapshot {
    generation: i64,
    catalog: Catalog,
    by_id: HashMap<SubscriptionId, Subscriber>,
}

impl Default for SubscriptionSnapshot {
    /// Returns an empty snapshot, with a generation that the database never uses.
    fn default() -> Self {
        SubscriptionSnapshot { generation: -1, catalog: Catalog::new(Vec::new()), by_id: HashMap::new() }
    }
}

/// A subscription with its secrets.
#[derive(Debug, Clone)]
pub struct Subscriber {
    pub subscription: Arc<Subscription>,
    /// The secrets to sign with, the present one first, each with the time at which it expires.
    secrets: Arc<Vec<(Secret, Option<DateTime<Utc>>)>>,
}

impl Subscriber {
    /// Returns the secrets that are in use at `now`, the present one first.
    pub fn secrets_at(&self, now: DateTime<Utc>) -> Vec<Secret> {
        let in_use = |(_, expires_at): &&(Secret, Option<DateTime<Utc>>)| expires_at.is_none_or(|at| at > now);
        self.secrets.iter().filter(in_use).map(|(secret, _)| secret.clone()).collect()
    }
}

impl SubscriptionCache {
    pub(crate) fn snapshot(&self) -> Arc<SubscriptionSnapshot> {
        self.0.get()
    }

    /// Drops the snapshot, and any snapshot that is being loaded.
    pub(crate) fn forget(&self) {
        self.0.finish(self.0.begin(), SubscriptionSnapshot::default());
    }

    /// Returns a subscriber, or `None` if there is no active subscription with this id.
    pub fn get(&self, id: SubscriptionId) -> Option<Subscriber> {
        self.snapshot().by_id.get(&id).cloned()
    }

    /// Returns the ids of all active subscriptions.
    pub fn ids(&self) -> Vec<SubscriptionId> {
        self.snapshot().by_id.keys().copied().collect()
    }

    /// Returns the queues of all active subscriptions.
    pub fn queues(&self) -> Vec<String> {
        self.snapshot().by_id.keys().map(|id| queue_of_subscription(*id)).collect()
    }
}

impl SubscriptionSnapshot {
    /// Loads the subscriptions that this connection sees, including uncommitted changes of its transaction.
    pub(crate) async fn load(conn: &mut AsyncPgConnection, scope: &Scope) -> Result<Self, Error> {
        let (generation, rows) = load_catalog(conn, scope).await?;
        let by_id: HashMap<SubscriptionId, Subscriber> =
            rows.into_iter().filter_map(|row| Some((row.id, subscriber(row)?))).collect();
        let subscriptions = by_id.values().map(|subscriber| subscriber.subscription.clone()).collect();
        Ok(SubscriptionSnapshot { generation, catalog: Catalog::new(subscriptions), by_id })
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
        let mut fan_out = FanOut { generation: self.generation, ..FanOut::default() };
        if self.by_id.is_empty() {
            return Ok(fan_out);
        }
        let mut matched: BTreeMap<SubscriptionId, i32> = BTreeMap::new();
        let mut over_budget: BTreeMap<SubscriptionId, OverBudget> = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            let subject = subject_of(event, time);
            let budget = Budget::of(subject.payload_bytes(), events.len());
            let found = self.catalog.matching(&subject, budget, allowance)?;
            for subscription in found.matched {
                matched.insert(subscription.id, subscription.version);
                fan_out.pushes.push(push(index, event, &subject, subscription, allowance)?);
            }
            for Subscription { id, .. } in found.over_budget.into_iter().map(AsRef::as_ref) {
                let first = OverBudget { subscription_id: *id, events: 0, last_event: index };
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
    /// Reloads the snapshot if it is outdated. Another server may have changed subscriptions that only this
    /// server dispatches, and a server that does not publish would not notice.
    pub async fn refresh_subscribers(&self) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        let present = load_generation(&mut conn, &self.scope()).await?;
        drop(conn);
        if self.subscription_cache().snapshot().generation == present {
            Ok(())
        } else {
            self.reload_subscribers().await
        }
    }

    /// Reloads the snapshot.
    pub async fn reload_subscribers(&self) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        let load = self.subscription_cache().0.begin();
        self.subscription_cache().0.finish(load, SubscriptionSnapshot::load(&mut conn, &self.scope()).await?);
        Ok(())
    }

    /// Returns the specification and the secrets of a subscription, whether it is active or not.
    pub async fn load_subscriber(&self, id: SubscriptionId) -> Result<(SubscriptionSpec, Vec<Secret>), Error> {
        let mut conn = self.database().connection().await?;
        let row = load_catalog_row(&mut conn, &self.scope(), id).await?.ok_or(Error::SubscriptionNotFound(id))?;
        let unreadable = || Error::Internal(format!("subscription {id} cannot be read"));
        let subscriber = subscriber(row).ok_or_else(unreadable)?;
        let secrets = subscriber.secrets_at(self.time());
        Ok((subscriber.subscription.spec.clone(), secrets))
    }
}

/// Returns the subscriber of a row, or `None` if this version cannot read it. A subscription that was written
/// by a later version is left to the servers of that version.
fn subscriber(row: CatalogRow) -> Option<Subscriber> {
    let Some(spec) = SubscriptionSpec::from_stored(&row.spec.0) else {
        log::error!(subscription_id = row.id; "a subscription cannot be read by this version");
        return None;
    };
    let secret = |(text, expires_at): (String, Option<DateTime<Utc>>)| Some((Secret::parse(&text).ok()?, expires_at));
    Some(Subscriber {
        subscription: Arc::new(Subscription { id: row.id, version: row.version, spec }),
        secrets: Arc::new(row.secrets.into_iter().zip(row.secrets_expire_at).filter_map(secret).collect()),
    })
}
