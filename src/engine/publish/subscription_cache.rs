//! Who subscribed: this server's copy, against which events are matched.
//!
//! The copy has a number, and whoever publishes names it; if it is not the present one any
//! more, nothing is stored, the copy is made anew and the events are matched again. So the
//! copy may be as old as it likes, and is never used when it is.
//!
//! Numbers are random and say nothing of which copy is newer: a restore brings an older one back.
//! A copy is replaced whenever its number differs.

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

/// The copy of the subscriptions that one server has.
#[derive(Default)]
pub struct SubscriptionCache(Latest<SubscriptionSnapshot>);

/// The active subscriptions at one time.
pub struct SubscriptionSnapshot {
    generation: i64,
    catalog: Catalog,
    by_id: HashMap<SubscriptionId, Subscriber>,
}

impl Default for SubscriptionSnapshot {
    /// Nothing is known yet, under a number that there never is.
    fn default() -> Self {
        SubscriptionSnapshot { generation: -1, catalog: Catalog::new(Vec::new()), by_id: HashMap::new() }
    }
}

/// Somebody who subscribed.
#[derive(Debug, Clone)]
pub struct Subscriber {
    /// To what, and how.
    pub subscription: Arc<Subscription>,
    /// What to sign with, the present one first, and until when.
    secrets: Arc<Vec<(Secret, Option<DateTime<Utc>>)>>,
}

impl Subscriber {
    /// What to sign with now.
    pub fn secrets_at(&self, now: DateTime<Utc>) -> Vec<Secret> {
        let in_use = |(_, expires_at): &&(Secret, Option<DateTime<Utc>>)| expires_at.is_none_or(|at| at > now);
        self.secrets.iter().filter(in_use).map(|(secret, _)| secret.clone()).collect()
    }
}

impl SubscriptionCache {
    /// The copy.
    pub(crate) fn snapshot(&self) -> Arc<SubscriptionSnapshot> {
        self.0.get()
    }

    /// Forgets them, and whatever is being loaded.
    pub(crate) fn forget(&self) {
        self.0.finish(self.0.begin(), SubscriptionSnapshot::default());
    }

    /// A subscriber, if it is an active one.
    pub fn get(&self, id: SubscriptionId) -> Option<Subscriber> {
        self.snapshot().by_id.get(&id).cloned()
    }

    /// All of their ids.
    pub fn ids(&self) -> Vec<SubscriptionId> {
        self.snapshot().by_id.keys().copied().collect()
    }

    /// Their queues.
    pub fn queues(&self) -> Vec<String> {
        self.snapshot().by_id.keys().map(|id| queue_of_subscription(*id)).collect()
    }
}

impl SubscriptionSnapshot {
    /// Makes a copy of what this connection sees.
    pub(crate) async fn load(conn: &mut AsyncPgConnection, scope: &Scope) -> Result<Self, Error> {
        let (generation, rows) = load_catalog(conn, scope).await?;
        let by_id: HashMap<SubscriptionId, Subscriber> =
            rows.into_iter().filter_map(|row| Some((row.id, subscriber(row)?))).collect();
        let subscriptions = by_id.values().map(|subscriber| subscriber.subscription.clone()).collect();
        Ok(SubscriptionSnapshot { generation, catalog: Catalog::new(subscriptions), by_id })
    }

    /// Its number.
    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns who gets what of these events. Ends early if that is more than can be stored in one
    /// statement.
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
                let unknown = OverBudget { subscription_id: *id, events: 0, last_event: index };
                let over = over_budget.entry(*id).or_insert(unknown);
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
    /// Makes the copy anew if it is an old one: subscriptions may have been changed elsewhere
    /// that only this server serves.
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

    /// Makes the copy anew.
    pub async fn reload_subscribers(&self) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        let load = self.subscription_cache().0.begin();
        self.subscription_cache().0.finish(load, SubscriptionSnapshot::load(&mut conn, &self.scope()).await?);
        Ok(())
    }

    /// How a subscription is sent to, and signed with what, whether it is active or not.
    pub async fn load_subscriber(&self, id: SubscriptionId) -> Result<(SubscriptionSpec, Vec<Secret>), Error> {
        let mut conn = self.database().connection().await?;
        let row = load_catalog_row(&mut conn, &self.scope(), id).await?.ok_or(Error::SubscriptionNotFound(id))?;
        let unreadable = || Error::Internal(format!("subscription {id} cannot be read"));
        let subscriber = subscriber(row).ok_or_else(unreadable)?;
        let secrets = subscriber.secrets_at(self.time());
        Ok((subscriber.subscription.spec.clone(), secrets))
    }
}

/// A subscription that only a later version can read is left to servers that understand it.
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
