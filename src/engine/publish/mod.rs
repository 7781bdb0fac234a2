//! Publishing: events are stored, with their deliveries.
//!
//! [`Engine::publish_events`] is the call. Each request matches its own events against a snapshot of the
//! subscriptions ([`subscription_cache`], [`matching`]). [`Engine::publish_calls`] then stores the events of
//! many requests in one transaction. If the subscriptions have changed in the meantime, nothing is stored
//! and the events are matched again. A batch without ordering keys is stored by a single statement;
//! ordering keys need locks and thus a transaction of several statements.

pub(crate) mod filter_overruns;
pub(crate) mod matching;
pub(crate) mod subscription_cache;

use std::collections::BTreeSet;
use std::sync::Arc;

use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::event::NewEvent;
use crate::error::{Error, OutageKind};
use crate::metrics::PushCount;
use crate::store::tables::deliveries::EarliestTimes;
use crate::store::tables::events::{FanOut, Published, Push, StoredEvent, publish_events};
use crate::store::tables::ordering::{ConsumerKey, PULL_QUEUE, lock_keys};
use crate::store::tables::ready::{queue_of_subscription, queue_of_tag};

use crate::engine::batching::Answers;
use crate::engine::batching::deadline::{WithDeadline, answer_each, send_all};
use crate::engine::change_set::advance_keys;
use crate::engine::publish::matching::{MATCH_WITHIN, MatchedPublication, Publishing};
use crate::engine::waiting::low_water_marks::QueuePosition;
use crate::engine::{Engine, ReadyEntry, statement, transaction, weight};

/// The number of times that events are matched before the publisher receives a retryable error.
const MATCHES: usize = 20;

/// The number of pushes that one statement may create.
pub(crate) const PUSHES_PER_STATEMENT: usize = 20_000;

/// The events of one request. All of them are stored, or none.
pub(crate) type Publication = Arc<Vec<NewEvent>>;

impl Engine {
    /// Stores all events or none, in the given order. Returns the values that the database has assigned.
    pub async fn publish_events(&self, events: Publication) -> Result<Vec<StoredEvent>, Error> {
        let weight = weight(events.len(), payload_bytes(&events));
        let began = Instant::now();
        for _ in 0..MATCHES {
            let publication = self.match_publication(events.clone(), began + MATCH_WITHIN).await?;
            match self.0.batchers.publish.call_since(publication, weight, began).await? {
                Publishing::Stored(stored) => return Ok(stored),
                Publishing::Outdated => {}
            }
        }
        Err(subscriptions_keep_changing())
    }

    /// Stores the events of many requests, with their deliveries, in one transaction. If the
    /// subscriptions have changed since the events were matched, or a publisher stopped waiting in the
    /// meantime, the events are matched again.
    pub(crate) async fn publish_calls(
        &self,
        publications: Vec<WithDeadline<MatchedPublication>>,
    ) -> Result<Answers<Publishing>, Error> {
        for _ in 0..MATCHES {
            let wanted: Vec<&WithDeadline<MatchedPublication>> =
                publications.iter().filter(|timed| timed.time.is_wanted()).collect();
            let joined = self.join_fan_outs(wanted.iter().map(|timed| &timed.call));
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
            self.reload_subscribers().await?;
        }
        Err(subscriptions_keep_changing())
    }

    /// Stores events and their deliveries. Returns `None` and stores nothing if the subscriptions have
    /// changed since the events were matched.
    async fn publish_matched(&self, events: &[&NewEvent], fan_out: &FanOut) -> Result<Option<Vec<StoredEvent>>, Error> {
        let stored = if keys_of(events, fan_out).is_empty() {
            let published =
                statement!(self, |conn| { Ok(publish_events(conn, &self.scope(), events, fan_out).await?) })?;
            published.map(|published| (published, Vec::new()))
        } else {
            transaction!(self, |conn| publish_in_order(conn, self, events, fan_out).await)?
        };
        let Some((published, released)) = stored else { return Ok(None) };
        self.notify_after_publish(events, fan_out, &published, released);
        Ok(Some(published.events))
    }

    /// Wakes waiters and updates due times, filter overruns and metrics after a publication. Call this after
    /// the commit.
    pub(crate) fn notify_after_publish(
        &self,
        events: &[&NewEvent],
        fan_out: &FanOut,
        published: &Published,
        released: Vec<ReadyEntry>,
    ) {
        let own = |(event, stored): (&&NewEvent, &StoredEvent)| {
            let position = QueuePosition { rank: -event.priority, seq: stored.ready_seq? };
            let queues = event.tags.as_slice().iter().map(|tag| queue_of_tag(tag)).collect();
            Some(ReadyEntry { queues, position })
        };
        let push = |(push, seq): (&Push, &Option<i64>)| {
            let position = QueuePosition { rank: -events[push.event].priority, seq: (*seq)? };
            Some(ReadyEntry { queues: [queue_of_subscription(push.subscription_id)].into(), position })
        };
        let mut entered: Vec<ReadyEntry> = events.iter().zip(&published.events).filter_map(own).collect();
        entered.extend(fan_out.pushes.iter().zip(&published.push_seqs).filter_map(push));
        entered.extend(released);
        let own_due = published.events.iter().filter_map(|stored| stored.due_at).min();
        self.due_times().wait_for(&EarliestTimes {
            due_at: own_due.into_iter().chain(published.first_push_due_at).min(),
            expires_at: events.iter().filter_map(|event| event.expires_at).min(),
            look_at: None,
        });
        self.database().note_success();
        self.wake(&entered);
        self.filter_overruns().note(fan_out, &published.events);
        self.count_publication(events, fan_out, published);
    }

    fn count_publication(&self, events: &[&NewEvent], fan_out: &FanOut, published: &Published) {
        self.metrics().events_received.inc_by(events.len() as u64);
        for push in &fan_out.pushes {
            self.metrics().count_push(PushCount::Enqueued, push.subscription_id.0);
        }
        for over in &fan_out.over_budget {
            self.metrics().count_over_budget(over.subscription_id.0, over.events as u64);
        }
        for (event, stored) in events.iter().zip(&published.events) {
            if event.tags.is_empty() && stored.enqueued == 0 {
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

fn subscriptions_keep_changing() -> Error {
    Error::outage(OutageKind::Conflict, "the subscriptions keep changing")
}

/// Returns the ordering keys of the events and pushes, each with its consumer.
fn keys_of(events: &[&NewEvent], fan_out: &FanOut) -> BTreeSet<ConsumerKey> {
    let with_work = events.iter().filter(|event| !event.tags.is_empty());
    let own = with_work.filter_map(|event| Some((event.ordering_key.clone()?, PULL_QUEUE)));
    let pushed = fan_out.pushes.iter().filter_map(|push| Some((push.ordering_key.clone()?, push.subscription_id)));
    own.chain(pushed).collect()
}

/// Stores events in a transaction of the caller's and moves the heads of their ordering keys to `ready`.
/// Returns `None` and stores nothing if the subscriptions have changed.
pub(crate) async fn publish_in_order(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    events: &[&NewEvent],
    fan_out: &FanOut,
) -> Result<Option<(Published, Vec<ReadyEntry>)>, Error> {
    let keys = keys_of(events, fan_out);
    let to_lock: BTreeSet<&String> = keys.iter().map(|(key, _)| key).collect();
    // The keys are locked before ids are assigned: within a key, the order of ids must be the order of
    // commits.
    let scope = engine.scope();
    lock_keys(conn, &scope, &to_lock.into_iter().cloned().collect::<Vec<_>>()).await?;
    let published = publish_events(conn, &scope, events, fan_out).await?;
    let Some(published) = published else { return Ok(None) };
    let released = advance_keys(conn, &scope, keys).await?;
    Ok(Some((published, released)))
}
