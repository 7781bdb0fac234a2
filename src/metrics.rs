//! What is counted, for Prometheus. Counters are this server's own; what the database knows is
//! asked for when somebody looks, and set here just before it is written.
//!
//! A label that anybody can make up values for would fill the memory of whoever scrapes, so
//! only so many subscriptions are told apart; the rest is `other`.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// How many subscriptions have a label of their own.
pub const LABELLED_SUBSCRIPTIONS: usize = 200;

/// Upper bounds of the buckets of latencies, in seconds.
const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// Which subscription is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SubscriptionLabel {
    /// Its id, or `other`.
    subscription: String,
}

/// Which action is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ActionLabel {
    /// Its word.
    action: &'static str,
}

/// Counts by subscription.
type BySubscription = Family<SubscriptionLabel, Counter>;

/// Everything that this server counts.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "each is described where it is registered")]
pub struct Metrics {
    registry: Registry,
    labelled: Mutex<BTreeSet<i64>>,
    pub events_received: Counter,
    pub events_without_subscriber: Counter,
    pub events_claimed: Counter,
    pub unwatched_leases: Counter,
    settlements: Family<ActionLabel, Counter>,
    deliveries_enqueued: BySubscription,
    filters_over_budget: BySubscription,
    pub long_matchings: Gauge,
    pushes_sent: BySubscription,
    pushes_succeeded: BySubscription,
    pushes_retried: BySubscription,
    pushes_dead_lettered: BySubscription,
    pub push_seconds: Duration,
    pub first_push_seconds: Duration,
    pub pushes_in_flight: Gauge,
    pub pushes_pending: Gauge,
    pub oldest_push_seconds: Gauge<f64, AtomicU64>,
    pub breakers_open: Gauge,
    pub event_log_partitions: Gauge,
}

/// A histogram of seconds.
#[derive(Debug, Clone)]
pub struct Duration(Histogram);

impl Default for Duration {
    fn default() -> Self {
        Duration(Histogram::new(BUCKETS))
    }
}

impl Duration {
    /// Counts one.
    pub fn observe(&self, seconds: f64) {
        self.0.observe(seconds);
    }
}

/// What is counted by subscription.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "named as in the registry")]
pub enum PushCount {
    Enqueued,
    Sent,
    Succeeded,
    Retried,
    DeadLettered,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let mut metrics = Metrics::default();
        let mut registry = Registry::with_prefix("waybill");
        metrics.register(&mut registry);
        metrics.registry = registry;
        metrics
    }

    #[rustfmt::skip]
    fn register(&self, registry: &mut Registry) {
        registry.register("events_received", "Events stored", self.events_received.clone());
        registry.register("events_without_subscriber", "Events without tags that nobody subscribed to", self.events_without_subscriber.clone());
        registry.register("events_claimed", "Events handed to workers", self.events_claimed.clone());
        registry.register("unwatched_leases", "Leases that were not on the list of leases, and were put on it; should stay 0", self.unwatched_leases.clone());
        registry.register("settlements", "Words of workers and of the dispatcher, put on record", self.settlements.clone());
        registry.register("deliveries_enqueued", "Deliveries made for subscribers", self.deliveries_enqueued.clone());
        registry.register("filters_over_budget", "Events that a subscription's filter exceeded its budget for, and that it did not match therefore", self.filters_over_budget.clone());
        registry.register("long_matchings", "Requests whose events are being matched, or wait for that, because filters look at much of them", self.long_matchings.clone());
        registry.register("pushes_sent", "Requests to subscribers", self.pushes_sent.clone());
        registry.register("pushes_succeeded", "Requests that subscribers took", self.pushes_succeeded.clone());
        registry.register("pushes_retried", "Requests that are to be sent again", self.pushes_retried.clone());
        registry.register("pushes_dead_lettered", "Deliveries that were given up", self.pushes_dead_lettered.clone());
        registry.register("push_seconds", "How long subscribers took to answer", self.push_seconds.0.clone());
        registry.register("first_push_seconds", "From publishing to the end of the first request", self.first_push_seconds.0.clone());
        registry.register("pushes_in_flight", "Requests of this server under way", self.pushes_in_flight.clone());
        registry.register("pushes_pending", "Deliveries that wait to be sent or sent again, counted up to a limit", self.pushes_pending.clone());
        registry.register("oldest_push_seconds", "For how long the oldest delivery could have been sent", self.oldest_push_seconds.clone());
        registry.register("breakers_open", "Endpoints to which nothing is sent for now", self.breakers_open.clone());
        registry.register("event_log_partitions", "Partitions of the event log; each costs locks when a trail is read", self.event_log_partitions.clone());
    }

    /// Counts something of a subscription.
    pub fn count_push(&self, what: PushCount, subscription_id: i64) {
        let family = match what {
            PushCount::Enqueued => &self.deliveries_enqueued,
            PushCount::Sent => &self.pushes_sent,
            PushCount::Succeeded => &self.pushes_succeeded,
            PushCount::Retried => &self.pushes_retried,
            PushCount::DeadLettered => &self.pushes_dead_lettered,
        };
        family.get_or_create(&self.label(subscription_id)).inc();
    }

    /// Counts events that a subscription's filter exceeded its budget for.
    pub fn count_over_budget(&self, subscription_id: i64, events: u64) {
        self.filters_over_budget.get_or_create(&self.label(subscription_id)).inc_by(events);
    }

    /// Counts a word that was put on record.
    pub fn count_settlement(&self, action: &'static str) {
        self.settlements.get_or_create(&ActionLabel { action }).inc();
    }

    fn label(&self, subscription_id: i64) -> SubscriptionLabel {
        let mut labelled = self.labelled.lock().unwrap_or_else(PoisonError::into_inner);
        let has_label = labelled.contains(&subscription_id)
            || (labelled.len() < LABELLED_SUBSCRIPTIONS && labelled.insert(subscription_id));
        let subscription = if has_label { subscription_id.to_string() } else { "other".to_owned() };
        SubscriptionLabel { subscription }
    }

    /// All of it, as OpenMetrics text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_subscriptions_are_told_apart() {
        let metrics = Metrics::new();
        for id in 0..LABELLED_SUBSCRIPTIONS as i64 + 50 {
            metrics.count_push(PushCount::Sent, id);
        }
        metrics.count_push(PushCount::Sent, 0);
        let text = metrics.text().unwrap();
        assert_eq!(text.matches("waybill_pushes_sent_total{").count(), LABELLED_SUBSCRIPTIONS + 1);
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"other\"} 50\n"), "{text}");
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"0\"} 2\n"));
    }
}
