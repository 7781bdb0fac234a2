//! Metrics for Prometheus. Counters cover this server process only. Gauges whose values come from
//! the database are queried and set just before a scrape is rendered.
//!
//! Clients can create any number of subscriptions, and each label value costs the scraper memory.
//! Therefore only the first [`LABELLED_SUBSCRIPTIONS`] have their own label value; all others share
//! the value `other`.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The number of subscriptions that have their own label value.
pub(crate) const LABELLED_SUBSCRIPTIONS: usize = 200;

/// The upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SubscriptionLabel {
    /// The id of the subscription, or `other`.
    subscription: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ActionLabel {
    /// The action as the event log records it, such as `COMPLETED`.
    action: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TableLabel {
    table: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    /// Why a webhook was refused, as the counts of a source show it, such as `mismatch`.
    reason: &'static str,
}

/// The namespace and the id of a subscription.
pub(crate) type SubscriptionLabels = (i32, i64);

type BySubscription = Family<SubscriptionLabel, Counter>;

/// All metrics of this server. Each is described where it is registered.
#[derive(Debug, Default)]
pub struct Metrics {
    registry: Registry,
    /// The subscriptions that have their own label value, with their namespaces.
    labelled: Mutex<BTreeMap<i64, i32>>,
    pub events_received: Counter,
    pub events_repeated: Counter,
    /// Publishes that a limit of their namespace or key has refused.
    pub publishes_limited: Counter,
    webhooks_refused: Family<ReasonLabel, Counter>,
    pub events_without_subscriber: Counter,
    pub events_rejected: Counter,
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
    pub subscriptions_held: Gauge,
    pub event_log_partitions: Gauge,
    removed_rows: Family<TableLabel, Counter>,
    retention_lag: Family<TableLabel, Gauge<f64, AtomicU64>>,
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
    pub fn observe(&self, seconds: f64) {
        self.0.observe(seconds);
    }
}

/// The push counters that have a subscription label.
#[derive(Debug, Clone, Copy)]
pub enum PushCount {
    Enqueued,
    Sent,
    Succeeded,
    Retried,
    DeadLettered,
}

impl Metrics {
    /// Creates and registers all metrics, each at zero.
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
        registry.register("publishes_limited", "Publishes that were refused because of a limit of their namespace or key", self.publishes_limited.clone());
        registry.register("events_repeated", "Events that were published again under their idempotency key, and not stored again", self.events_repeated.clone());
        registry.register("webhooks_refused", "Webhooks to sources that were refused because their sender could not be verified", self.webhooks_refused.clone());
        registry.register("events_without_subscriber", "Events that have no tags and match no subscription", self.events_without_subscriber.clone());
        registry.register("events_rejected", "Events that were refused because they do not satisfy what is declared about their types", self.events_rejected.clone());
        registry.register("events_claimed", "Events handed to workers", self.events_claimed.clone());
        registry.register("unwatched_leases", "Leases that were missing from the list of watched leases and were added to it; should stay 0", self.unwatched_leases.clone());
        registry.register("settlements", "Settlements by workers and by the dispatcher", self.settlements.clone());
        registry.register("deliveries_enqueued", "Deliveries created for subscribers", self.deliveries_enqueued.clone());
        registry.register("filters_over_budget", "Events that a subscription did not match because its filter exceeded its budget", self.filters_over_budget.clone());
        registry.register("long_matchings", "Requests whose events are being matched, or wait to be matched, as long work because filters must read many bytes", self.long_matchings.clone());
        registry.register("pushes_sent", "Requests sent to subscribers", self.pushes_sent.clone());
        registry.register("pushes_succeeded", "Requests that subscribers accepted", self.pushes_succeeded.clone());
        registry.register("pushes_retried", "Requests that failed and will be retried", self.pushes_retried.clone());
        registry.register("pushes_dead_lettered", "Deliveries that became dead letters", self.pushes_dead_lettered.clone());
        registry.register("push_seconds", "Time that subscribers took to respond", self.push_seconds.0.clone());
        registry.register("first_push_seconds", "Time from publishing to the end of the first request", self.first_push_seconds.0.clone());
        registry.register("pushes_in_flight", "Requests to subscribers that this server has in flight", self.pushes_in_flight.clone());
        registry.register("pushes_pending", "Deliveries that wait for their first request or for a retry, counted up to a limit", self.pushes_pending.clone());
        registry.register("oldest_push_seconds", "Time that the oldest due delivery has been due", self.oldest_push_seconds.clone());
        registry.register("breakers_open", "Endpoints whose circuit breaker is open", self.breakers_open.clone());
        registry.register("subscriptions_held", "Subscriptions to which this server sends nothing because it cannot decrypt their secrets; should stay 0", self.subscriptions_held.clone());
        registry.register("event_log_partitions", "Partitions of the event log; each one costs locks when the log of an event is read", self.event_log_partitions.clone());
        registry.register("removed_rows", "Rows removed because of their age; of the event log whole partitions", self.removed_rows.clone());
        registry.register("retention_lag_seconds", "Time by which the oldest rows that are to be removed have exceeded their retention; 0 if none are left", self.retention_lag.clone());
    }

    pub fn count_push(&self, count: PushCount, subscription: SubscriptionLabels) {
        let family = match count {
            PushCount::Enqueued => &self.deliveries_enqueued,
            PushCount::Sent => &self.pushes_sent,
            PushCount::Succeeded => &self.pushes_succeeded,
            PushCount::Retried => &self.pushes_retried,
            PushCount::DeadLettered => &self.pushes_dead_lettered,
        };
        family.get_or_create(&self.label(subscription)).inc();
    }

    /// Counts `events` that a subscription did not match because its filter exceeded its budget.
    pub fn count_over_budget(&self, subscription: SubscriptionLabels, events: u64) {
        self.filters_over_budget.get_or_create(&self.label(subscription)).inc_by(events);
    }

    pub fn count_settlement(&self, action: &'static str) {
        self.settlements.get_or_create(&ActionLabel { action }).inc();
    }

    /// Counts a webhook to a source that was refused.
    pub fn count_refused_webhook(&self, reason: &'static str) {
        self.webhooks_refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts rows of a table that were removed because of their age.
    pub fn count_removed(&self, table: &'static str, rows: u64) {
        self.removed_rows.get_or_create(&TableLabel { table }).inc_by(rows);
    }

    pub fn set_retention_lag(&self, table: &'static str, seconds: f64) {
        self.retention_lag.get_or_create(&TableLabel { table }).set(seconds);
    }

    fn label(&self, (namespace_id, subscription_id): SubscriptionLabels) -> SubscriptionLabel {
        let mut labelled = self.labelled.lock().unwrap_or_else(PoisonError::into_inner);
        if labelled.len() < LABELLED_SUBSCRIPTIONS {
            labelled.insert(subscription_id, namespace_id);
        }
        let has_label = labelled.contains_key(&subscription_id);
        let subscription = if has_label { subscription_id.to_string() } else { "other".to_owned() };
        SubscriptionLabel { subscription }
    }

    /// Renders all metrics as OpenMetrics text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Renders the metrics of a namespace: the series of its subscriptions, and nothing about the server or about
    /// other namespaces.
    pub fn text_of(&self, namespace_id: i32) -> Result<String, std::fmt::Error> {
        let text = self.text()?;
        let labelled = self.labelled.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = |id: &str| id.parse().ok().and_then(|id: i64| labelled.get(&id)) == Some(&namespace_id);
        let mut own = String::new();
        for line in text.lines() {
            if line == "# EOF" || subscription_of(line).is_some_and(is_own) {
                own.push_str(line);
                own.push('\n');
            }
        }
        Ok(own)
    }
}

/// Returns the label value of a series of one subscription, or `None` for any other line.
fn subscription_of(line: &str) -> Option<&str> {
    let (_, labels) = line.split_once("{subscription=\"")?;
    labels.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_beyond_the_limit_share_one_label() {
        let metrics = Metrics::new();
        for id in 0..LABELLED_SUBSCRIPTIONS as i64 + 50 {
            metrics.count_push(PushCount::Sent, (1, id));
        }
        metrics.count_push(PushCount::Sent, (1, 0));
        let text = metrics.text().unwrap();
        assert_eq!(text.matches("waybill_pushes_sent_total{").count(), LABELLED_SUBSCRIPTIONS + 1);
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"other\"} 50\n"), "{text}");
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"0\"} 2\n"));
    }

    #[test]
    fn the_metrics_of_a_namespace_have_only_the_series_of_its_subscriptions() {
        let metrics = Metrics::new();
        metrics.count_push(PushCount::Sent, (1, 11));
        metrics.count_push(PushCount::Sent, (2, 22));
        metrics.count_push(PushCount::DeadLettered, (2, 22));
        metrics.events_received.inc();
        let mut lines: Vec<String> = metrics.text_of(2).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "# EOF",
                "waybill_pushes_dead_lettered_total{subscription=\"22\"} 1",
                "waybill_pushes_sent_total{subscription=\"22\"} 1"
            ]
        );
        assert_eq!(metrics.text_of(3).unwrap(), "# EOF\n");
    }
}
