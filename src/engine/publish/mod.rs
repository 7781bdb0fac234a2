//! Publishing: events are stored, with their deliveries.
//!
//! [`Engine::publish_events`] is the call. Each request checks its own events against the event types that are
//! declared ([`type_check`]), and matches them against a snapshot of the
//! subscriptions ([`subscription_cache`], [`matching`]). [`Engine::publish_calls`] then stores the events of
//! many requests in one transaction. If the subscriptions have changed in the meantime, nothing is stored
//! and the events are matched again. A batch without ordering keys is stored by a single statement, which
//! also claims events for workers that already wait for them ([`hand_over`]). Ordering keys need locks and thus
//! a transaction of several statements. An event that was published before, by its idempotency key, is not stored again
//! ([`repeats`]), even if it would not be accepted any more ([`rejected`]).

pub(crate) mod filter_overruns;
pub(crate) mod hand_over;
pub(crate) mod matching;
pub(crate) mod recent_repeats;
mod rejected;
mod repeats;
pub(crate) mod schema_cache;
pub(crate) mod subscription_cache;
pub(crate) mod type_catalog;
mod type_check;

use std::collections::BTreeSet;
use std::sync::Arc;

use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::event::NewEvent;
use crate::domain::ids::{NamespaceId, SubscriptionKey};
use crate::error::{Error, OutageKind};
use crate::metrics::subscriptions::SubscriptionCount;
use crate::store::tables::deliveries::EarliestTimes;
use crate::store::tables::events::{FanOut, NamespacedEvent, Published, Push, StoredEvent, publish_events};
use crate::store::tables::ordering::{ConsumerKey, PULL_QUEUE, lock_keys};
use crate::store::tables::ready::QueueKey;

use crate::engine::batching::Answers;
use crate::engine::batching::deadline::{WithDeadline, answer_each, send_all};
use crate::engine::change_set::advance_keys;
use crate::engine::publish::matching::{MATCH_WITHIN, MatchedPublication, Publishing};
use crate::engine::publish::repeats::{Distinct, check_reuse};
use crate::engine::waiting::low_water_marks::QueuePosition;
use crate::engine::{Engine, ReadyEntry, transaction, weight};

/// The number of times that events are matched before the publisher receives a retryable error.
const MATCHES: usize = 20;

/// The number of pushes that one statement may create.
pub(crate) const PUSHES_PER_STATEMENT: usize = 20_000;

/// The events of one request. All of them are stored, or none.
pub(crate) type Publication = Arc<Vec<NewEvent>>;

impl Engine {
    /// Stores all events in a namespace or none, in the given order. Returns the values that the database has assigned.
    /// An event whose idempotency key was used before is not stored again.
    pub async fn publish_events(&self, namespace: NamespaceId, events: Publication) -> Result<Vec<StoredEvent>, Error> {
        let began = Instant::now();
        let stored = match self.publish_accepted(namespace, events.clone(), began).await {
            // Boxed, because it is rare, and every publish would carry its size.
            Err(Error::EventsRejected(rejections)) => {
                Box::pin(self.publish_without_repeats(namespace, events, rejections, began)).await
            }
            stored => stored,
        }?;
        // Not every repeat is found by a statement, so they are counted here.
        self.metrics().events_repeated.inc_by(stored.iter().filter(|stored| stored.is_repeated).count() as u64);
        Ok(stored)
    }

    /// Stores events if all of them satisfy what is declared about their types.
    async fn publish_accepted(
        &self,
        namespace: NamespaceId,
        events: Publication,
        began: Instant,
    ) -> Result<Vec<StoredEvent>, Error> {
        let Some(distinct) = Distinct::of(&events)? else {
            return self.publish_distinct(namespace, events, began).await;
        };
        // Boxed, because it is rare, and every publish would carry its size.
        let stored = Box::pin(self.publish_distinct(namespace, Arc::new(distinct.events(&events)), began)).await;
        stored.map(|stored| distinct.repeat(&stored)).map_err(|error| distinct.about_all(error))
    }

    /// Stores events of which no two have the same idempotency key.
    async fn publish_distinct(
        &self,
        namespace: NamespaceId,
        events: Publication,
        began: Instant,
    ) -> Result<Vec<StoredEvent>, Error> {
        let weight = weight(events.len(), payload_bytes(&events));
        for _ in 0..MATCHES {
            let publication = self.match_publication(namespace, events.clone(), began + MATCH_WITHIN).await?;
            match self.0.batchers.publish.call_since(namespace, publication, weight, began).await? {
                Publishing::Stored(stored) => return check_reuse(stored),
                Publishing::Outdated => {}
            }
        }
        Err(subscriptions_keep_changing())
    }

    /// Stores the events of many requests, with their deliveries, in one transaction. If the
    /// subscriptions have changed since the events were matched, or a publisher stopped waiting in the
    /// meantime, the events are matched again. If those of a namespace have changed once more by then, its events are
    /// left to their callers: a tenant that keeps editing its subscriptions must not keep the others from publishing.
    pub(crate) async fn publish_calls(
        &self,
        publications: Vec<WithDeadline<MatchedPublication>>,
    ) -> Result<Answers<Publishing>, Error> {
        let (mut unsettled, mut is_reloaded) = (BTreeSet::new(), false);
        for _ in 0..MATCHES {
            let wanted: Vec<&WithDeadline<MatchedPublication>> =
                publications.iter().filter(|timed| timed.time.is_wanted()).collect();
            let joined = self.join_fan_outs(wanted.iter().map(|timed| &timed.call), &unsettled);
            check_size(&joined.fan_out)?;
            if !send_all(&wanted) {
                continue;
            }
            let stored = match joined.events.is_empty() {
                true => Some(Vec::new()),
                false => self.publish_matched(&joined.events, &joined.fan_out).await.inspect_err(|error| {
                    // The events may be stored, but no waiter has been notified of them.
                    if matches!(error, Error::OutcomeUnknown(_)) {
                        self.notify_after_unknown_commit();
                    }
                })?,
            };
            if let Some(stored) = stored {
                let mut outcomes = joined.distribute(stored).into_iter();
                let unanswered = || Error::Internal("a publication was not answered".into());
                return Ok(answer_each(&publications, &wanted, |_| outcomes.next().ok_or_else(unanswered)));
            }
            let changed = self.reload_changed(&joined.fan_out).await?;
            if std::mem::replace(&mut is_reloaded, true) {
                unsettled.extend(changed);
            }
        }
        Err(subscriptions_keep_changing())
    }

    /// Stores events and their deliveries. Returns `None` and stores nothing if the subscriptions have
    /// changed since the events were matched.
    async fn publish_matched(
        &self,
        events: &[NamespacedEvent<'_>],
        fan_out: &FanOut,
    ) -> Result<Option<Vec<StoredEvent>>, Error> {
        let stored = if keys_of(events, fan_out).is_empty() {
            self.publish_and_hand_over(events, fan_out).await?.map(|published| (published, Vec::new()))
        } else {
            transaction!(self, |conn| publish_in_order(conn, self, events, fan_out).await)?
        };
        let Some((published, released)) = stored else { return Ok(None) };
        self.notify_after_publish(events, fan_out, &published, released);
        Ok(Some(published.events))
    }

    /// Reloads the snapshots that are outdated after the database has refused a batch. Returns the namespaces of the
    /// batch whose subscriptions have changed since it was matched.
    async fn reload_changed(&self, fan_out: &FanOut) -> Result<Vec<NamespaceId>, Error> {
        self.refresh_subscribers_of(fan_out.generations.keys().copied().collect()).await?;
        let is_changed = |(namespace, generation): &(&NamespaceId, &i64)| {
            let snapshot = self.subscription_cache().snapshot(**namespace);
            snapshot.is_none_or(|snapshot| snapshot.generation() != **generation)
        };
        Ok(fan_out.generations.iter().filter(is_changed).map(|(namespace, _)| *namespace).collect())
    }

    /// Wakes waiters and updates due times, filter overruns and metrics after a publication. Call this after
    /// the commit.
    pub(crate) fn notify_after_publish(
        &self,
        events: &[NamespacedEvent<'_>],
        fan_out: &FanOut,
        published: &Published,
        released: Vec<ReadyEntry>,
    ) {
        let own = |(new, stored): (&NamespacedEvent<'_>, &StoredEvent)| {
            let position = QueuePosition { rank: -new.event.priority, seq: stored.ready_seq? };
            let queues = new.event.tags.as_slice().iter().map(|tag| QueueKey::of_tag(new.namespace, tag)).collect();
            Some(ReadyEntry { queues, position })
        };
        let push = |(push, seq): (&Push, &Option<i64>)| {
            let NamespacedEvent { namespace, event, .. } = events[push.event];
            let position = QueuePosition { rank: -event.priority, seq: (*seq)? };
            let queue = QueueKey::of_subscription(namespace.subscription(push.subscription_id));
            Some(ReadyEntry { queues: [queue].into(), position })
        };
        let mut entered: Vec<ReadyEntry> = events.iter().zip(&published.events).filter_map(own).collect();
        entered.extend(fan_out.pushes.iter().zip(&published.push_seqs).filter_map(push));
        entered.extend(released);
        let own_due = published.events.iter().filter_map(|stored| stored.due_at).min();
        self.due_times().wait_for(&EarliestTimes {
            due_at: own_due.into_iter().chain(published.first_push_due_at).min(),
            expires_at: events.iter().filter_map(|new| new.event.expires_at).min(),
            look_at: None,
        });
        self.database().note_success();
        self.wake(&entered);
        self.filter_overruns().note(fan_out, &published.events);
        self.count_publication(events, fan_out, published);
    }

    fn count_publication(&self, events: &[NamespacedEvent<'_>], fan_out: &FanOut, published: &Published) {
        let received = published.events.iter().filter(|stored| stored.is_stored).count();
        self.metrics().events_received.inc_by(received as u64);
        self.stats().count_published(events, &published.events);
        for push in fan_out.pushes.iter().filter(|push| published.events[push.event].is_stored) {
            let namespace = events[push.event].namespace;
            self.metrics().subscriptions.count(SubscriptionCount::Enqueued, (namespace.0, push.subscription_id.0), 1);
        }
        for over in &fan_out.over_budget {
            let SubscriptionKey { namespace, id } = over.subscription;
            self.metrics().subscriptions.count(SubscriptionCount::OverBudget, (namespace.0, id.0), over.events as u64);
        }
        for (NamespacedEvent { event, .. }, stored) in events.iter().zip(&published.events) {
            if stored.is_stored && event.tags.is_empty() && stored.enqueued == 0 {
                self.metrics().events_without_subscriber.inc();
                log::debug!(event_id = stored.id, event_type = event.event_type.as_deref().unwrap_or_default(); "an event has no subscriber");
            }
        }
    }
}

fn payload_bytes(events: &[NewEvent]) -> usize {
    events.iter().filter_map(|event| event.payload.as_ref()).map(|json| json.as_str().len()).sum()
}

/// Returns an error if the events have more pushes than one statement may create. The batcher then splits a
/// batch of several requests.
pub(crate) fn check_size(fan_out: &FanOut) -> Result<(), Error> {
    if fan_out.pushes.len() <= PUSHES_PER_STATEMENT {
        return Ok(());
    }
    let reason = format!("would be pushed more than {PUSHES_PER_STATEMENT} times, which is the most in one request");
    Err(Error::invalid("events", reason))
}

pub(crate) fn subscriptions_keep_changing() -> Error {
    Error::outage(OutageKind::Conflict, "the subscriptions keep changing")
}

/// Returns the ordering keys of the events and pushes, each with its consumer.
fn keys_of(events: &[NamespacedEvent<'_>], fan_out: &FanOut) -> BTreeSet<ConsumerKey> {
    let with_work = events.iter().filter(|new| !new.event.tags.is_empty());
    let own = with_work.filter_map(|new| {
        let key = new.event.ordering_key.clone()?;
        Some(ConsumerKey { namespace: new.namespace, key, consumer: PULL_QUEUE })
    });
    let pushed = fan_out.pushes.iter().filter_map(|push| {
        let (namespace, key) = (events[push.event].namespace, push.ordering_key.clone()?);
        Some(ConsumerKey { namespace, key, consumer: push.subscription_id })
    });
    own.chain(pushed).collect()
}

/// Returns the events of one request as those of a batch.
pub(crate) fn in_namespace(namespace: NamespaceId, events: &[NewEvent], request: i32) -> Vec<NamespacedEvent<'_>> {
    events.iter().map(|event| NamespacedEvent { namespace, event, request }).collect()
}

/// Stores events in a transaction of the caller's and moves the heads of their ordering keys to `ready`.
/// Returns `None` and stores nothing if the subscriptions have changed.
pub(crate) async fn publish_in_order(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    events: &[NamespacedEvent<'_>],
    fan_out: &FanOut,
) -> Result<Option<(Published, Vec<ReadyEntry>)>, Error> {
    let keys = keys_of(events, fan_out);
    let to_lock: BTreeSet<(NamespaceId, &str)> = keys.iter().map(|key| (key.namespace, key.key.as_str())).collect();
    // The keys are locked before ids are assigned: within a key, the order of ids must be the order of
    // commits.
    lock_keys(conn, &to_lock).await?;
    let published = publish_events(conn, engine.now(), events, fan_out, &[], engine.key_rule(false)).await?;
    let Some(published) = published else { return Ok(None) };
    let released = advance_keys(conn, engine.now(), keys).await?;
    Ok(Some((published, released)))
}
