//! Metrics for Prometheus. Counters cover this server process only. Gauges whose values come from
//! the database are read before a scrape is rendered, and are absent while it does not answer ([`database`]).
//!
//! Counting must cost nothing beside the work that is counted: a counter is an atomic, a histogram some of them
//! ([`histogram`]), and what has a fixed set of labels has its series from the start ([`lanes`], [`http`]).
//!
//! Clients can create any number of subscriptions and tags, and each label value costs the scraper memory. Therefore only
//! some have their own label value, and all others share the value `other` ([`subscriptions`],
//! [`database::LABELLED_TAGS`]).

pub(crate) mod database;
pub(crate) mod histogram;
pub(crate) mod http;
pub(crate) mod lanes;
pub(crate) mod process;
pub(crate) mod subscriptions;
pub(crate) mod text_format;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use database::DatabaseGauges;
use histogram::Histogram;
use http::RequestDurations;
use lanes::Lanes;
use process::Process;
use subscriptions::SubscriptionCounters;

/// The label value that all others share.
const OTHER: &str = "other";

/// The upper bounds of the buckets of pushes, in seconds.
const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

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
    /// Why a webhook was refused, as the counts of a source show it, such as `mismatch`; or why a call was, as the code
    /// of its problem.
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct BuildLabels {
    version: &'static str,
    rustc: &'static str,
}

/// The actions of workers and of the dispatcher that are counted.
const SETTLEMENTS: [&str; 4] = ["STARTED", "COMPLETED", "FAILED", "RELEASED"];

/// All metrics of this server. Each is described where it is registered.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub(crate) subscriptions: SubscriptionCounters,
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
    /// Those of [`SETTLEMENTS`], in this order.
    settlement_counters: [Counter; SETTLEMENTS.len()],
    pub settlements_repeated: Counter,
    pub changes: ChangeCounters,
    calls_refused: Family<ReasonLabel, Counter>,
    pub long_matchings: Gauge,
    pub push_seconds: Histogram,
    pub first_push_seconds: Histogram,
    pub pushes_in_flight: Gauge,
    pub subscriptions_held: Gauge,
    pub event_log_partitions: Gauge,
    /// Spans of traces that the collector has taken, that the full queue dropped, and that the collector did not take.
    pub spans_exported: Counter,
    pub spans_dropped: Counter,
    pub spans_failed: Counter,
    removed_rows: Family<TableLabel, Counter>,
    retention_lag: Family<TableLabel, Gauge<f64, AtomicU64>>,
    /// The same values, by table: a family cannot be listed.
    retention_lags: Mutex<BTreeMap<&'static str, f64>>,
    pub lanes: Lanes,
    pub requests: Arc<RequestDurations>,
    pub database: Arc<DatabaseGauges>,
    pub pool: PoolGauges,
    pub process: Arc<Process>,
    pub long_poll_waiters: Gauge,
    pub log_streams: Gauge,
}

/// What changes of events that are not settlements, or not only.
#[derive(Debug, Default)]
pub struct ChangeCounters {
    pub events_retried: Counter,
    pub events_failed: Counter,
    pub events_poisoned: Counter,
    pub events_reset: Counter,
    pub events_expired: Counter,
    pub leases_expired: Counter,
}

/// The use of the pool of connections, as of the latest scrape.
#[derive(Debug, Default)]
pub struct PoolGauges {
    connections: Family<StateLabel, Gauge>,
    pub max: Gauge,
    pub waiting: Gauge,
}

impl PoolGauges {
    pub fn set_connections(&self, in_use: usize, idle: usize) {
        for (state, count) in [("in_use", in_use), ("idle", idle)] {
            self.connections.get_or_create(&StateLabel { state }).set(count as i64);
        }
    }
}

impl Metrics {
    /// Creates and registers all metrics, each at zero.
    pub fn new() -> Self {
        let settlements = Family::<ActionLabel, Counter>::default();
        let settlement_counters = SETTLEMENTS.map(|action| settlements.get_or_create_owned(&ActionLabel { action }));
        let mut metrics = Metrics {
            registry: Registry::default(),
            subscriptions: SubscriptionCounters::new(),
            events_received: Counter::default(),
            events_repeated: Counter::default(),
            publishes_limited: Counter::default(),
            webhooks_refused: Family::default(),
            events_without_subscriber: Counter::default(),
            events_rejected: Counter::default(),
            events_claimed: Counter::default(),
            unwatched_leases: Counter::default(),
            settlements,
            settlement_counters,
            settlements_repeated: Counter::default(),
            changes: ChangeCounters::default(),
            calls_refused: Family::default(),
            long_matchings: Gauge::default(),
            push_seconds: Histogram::new(&BUCKETS),
            first_push_seconds: Histogram::new(&BUCKETS),
            pushes_in_flight: Gauge::default(),
            subscriptions_held: Gauge::default(),
            event_log_partitions: Gauge::default(),
            spans_exported: Counter::default(),
            spans_dropped: Counter::default(),
            spans_failed: Counter::default(),
            removed_rows: Family::default(),
            retention_lag: Family::default(),
            retention_lags: Mutex::default(),
            lanes: Lanes::new(),
            requests: Arc::default(),
            database: Arc::default(),
            pool: PoolGauges::default(),
            process: Arc::new(Process::new()),
            long_poll_waiters: Gauge::default(),
            log_streams: Gauge::default(),
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.process.clone()));
        metrics.register(registry.sub_registry_with_prefix("waybill"));
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
        registry.register("long_matchings", "Requests whose events are being matched, or wait to be matched, as long work because filters must read many bytes", self.long_matchings.clone());
        registry.register("push_seconds", "Time that subscribers took to respond", self.push_seconds.clone());
        registry.register("first_push_seconds", "Time from publishing to the end of the first request", self.first_push_seconds.clone());
        registry.register("pushes_in_flight", "Requests to subscribers that this server has in flight", self.pushes_in_flight.clone());
        registry.register("subscriptions_held", "Subscriptions to which this server sends nothing because it cannot decrypt their secrets; should stay 0", self.subscriptions_held.clone());
        registry.register("event_log_partitions", "Partitions of the event log; each one costs locks when the log of an event is read", self.event_log_partitions.clone());
        registry.register("spans_exported", "Spans of traces that the collector has taken", self.spans_exported.clone());
        registry.register("spans_dropped", "Spans of traces that were dropped because too many waited to be sent", self.spans_dropped.clone());
        registry.register("spans_failed", "Spans of traces that the collector did not take", self.spans_failed.clone());
        registry.register("settlements_repeated", "Settlements that were recorded before, and were answered again", self.settlements_repeated.clone());
        registry.register("events_retried", "Failures of events after which another attempt follows", self.changes.events_retried.clone());
        registry.register("events_failed", "Events that have failed for good, with those that were given up as poison", self.changes.events_failed.clone());
        registry.register("events_poisoned", "Events that were given up because their leases expired too often in a row", self.changes.events_poisoned.clone());
        registry.register("events_reset", "Events that were taken back from their workers, by an operator or because their lease expired", self.changes.events_reset.clone());
        registry.register("events_expired", "Events that were not claimed before they expired", self.changes.events_expired.clone());
        registry.register("leases_expired", "Leases of events and pushes that ended before their work was settled", self.changes.leases_expired.clone());
        registry.register("calls_refused", "Calls that were answered with a problem, by the code of the problem", self.calls_refused.clone());
        registry.register("long_poll_waiters", "Workers that wait in long polls", self.long_poll_waiters.clone());
        registry.register("log_streams", "Streams of the event log that are open", self.log_streams.clone());
        registry.register("database_connections", "Connections of the pool", self.pool.connections.clone());
        registry.register("database_connections_max", "Connections that the pool may have", self.pool.max.clone());
        registry.register("database_callers_waiting", "Callers that wait for a connection of the pool", self.pool.waiting.clone());
        registry.register("build_info", "The version of Waybill, and of the compiler that made it", build_info());
        self.subscriptions.register(registry);
        self.lanes.register(registry);
        registry.register_collector(Box::new(self.requests.clone()));
        registry.register_collector(Box::new(self.database.clone()));
        registry.register("removed_rows", "Rows removed because of their age; of the event log whole partitions", self.removed_rows.clone());
        registry.register("retention_lag_seconds", "Time by which the oldest rows that are to be removed have exceeded their retention; 0 if none are left", self.retention_lag.clone());
    }

    pub fn count_settlement(&self, action: &'static str) {
        if let Some(index) = SETTLEMENTS.iter().position(|known| *known == action) {
            self.settlement_counters[index].inc();
        }
    }

    /// Counts a webhook to a source that was refused.
    pub fn count_refused_webhook(&self, reason: &'static str) {
        self.webhooks_refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts a call that was answered with a problem.
    pub fn count_refused_call(&self, code: &'static str) {
        self.calls_refused.get_or_create(&ReasonLabel { reason: code }).inc();
    }

    /// Counts rows of a table that were removed because of their age.
    pub fn count_removed(&self, table: &'static str, rows: u64) {
        self.removed_rows.get_or_create(&TableLabel { table }).inc_by(rows);
    }

    pub fn set_retention_lag(&self, table: &'static str, seconds: f64) {
        self.retention_lag.get_or_create(&TableLabel { table }).set(seconds);
        self.retention_lags.lock().unwrap_or_else(PoisonError::into_inner).insert(table, seconds);
    }

    /// Returns by how many seconds the removal of old rows is behind, by table.
    pub(crate) fn retention_lags(&self) -> Vec<(&'static str, f64)> {
        let lags = self.retention_lags.lock().unwrap_or_else(PoisonError::into_inner);
        lags.iter().map(|(table, seconds)| (*table, *seconds)).collect()
    }

    /// Renders all metrics as OpenMetrics text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Renders the metrics of a namespace: the series of its subscriptions and tags, and nothing about the server or
    /// about other namespaces.
    pub fn text_of(&self, namespace_id: i32) -> Result<String, std::fmt::Error> {
        let text = self.text()?;
        let name = self.database.name_of(namespace_id);
        let own_subscriptions = self.subscriptions.labelled_of(namespace_id);
        let is_own = |line: &str| match first_label(line) {
            Some(("subscription", id)) => id.parse().is_ok_and(|id| own_subscriptions.contains(&id)),
            Some(("namespace", value)) => name.as_deref() == Some(value),
            _ => false,
        };
        let mut own = String::new();
        for line in text.lines().filter(|line| *line == "# EOF" || is_own(line)) {
            own.push_str(line);
            own.push('\n');
        }
        Ok(own)
    }
}

fn build_info() -> Family<BuildLabels, Gauge> {
    let info = Family::<BuildLabels, Gauge>::default();
    info.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION"), rustc: env!("WAYBILL_RUSTC") }).set(1);
    info
}

/// Returns the name and value of the first label of a series, or `None` for any other line. Later labels may have values
/// that clients choose. The value of a first label has no characters that are escaped.
fn first_label(line: &str) -> Option<(&str, &str)> {
    let (_, labels) = line.split_once('{').filter(|_| !line.starts_with('#'))?;
    let (name, rest) = labels.split_once("=\"")?;
    rest.split_once('"').map(|(value, _)| (name, value))
}

#[cfg(test)]
mod tests {
    use super::database::{DatabaseFigures, QueueFigures, TagFigures};
    use super::subscriptions::SubscriptionCount;
    use super::*;

    #[test]
    fn the_metrics_of_a_namespace_have_only_the_series_of_its_subscriptions() {
        let metrics = Metrics::new();
        metrics.subscriptions.count(SubscriptionCount::Sent, (1, 11), 1);
        metrics.subscriptions.count(SubscriptionCount::Sent, (2, 22), 1);
        metrics.subscriptions.count(SubscriptionCount::DeadLettered, (2, 22), 1);
        metrics.events_received.inc();
        let mut lines: Vec<String> = metrics.text_of(2).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "# EOF",
                "waybill_deliveries_enqueued_total{subscription=\"22\"} 0",
                "waybill_filters_over_budget_total{subscription=\"22\"} 0",
                "waybill_pushes_dead_lettered_total{subscription=\"22\"} 1",
                "waybill_pushes_retried_total{subscription=\"22\"} 0",
                "waybill_pushes_sent_total{subscription=\"22\"} 1",
                "waybill_pushes_succeeded_total{subscription=\"22\"} 0",
            ]
        );
        assert_eq!(metrics.text_of(3).unwrap(), "# EOF\n");
    }

    #[test]
    fn the_tags_of_a_namespace_are_shown_to_it_alone_whatever_they_are_called() {
        let metrics = Metrics::new();
        let tag = |namespace_id, namespace: &str, tag: &str| TagFigures {
            namespace_id,
            namespace: namespace.into(),
            tag: tag.into(),
            waiting: 1,
            oldest_seconds: 1.0,
            workers: Some(1),
        };
        let tags = vec![
            tag(2, "north", "mail"),
            tag(3, "south", "x{namespace=\"north\",tag=\"y\"} 1"),
            tag(3, "south", "a\nwaybill_queue_depth{namespace=\"north\",tag=\"y\"} 1"),
        ];
        let queues = QueueFigures { tags, is_complete: true };
        metrics.database.set(Some(DatabaseFigures { queues, ..DatabaseFigures::default() }));
        let of = |id| metrics.text_of(id).unwrap();
        assert_eq!(of(2).matches("tag=\"mail\"").count(), 3, "{}", of(2));
        assert_eq!(of(2).lines().count(), 4, "{}", of(2));
        assert!(!of(3).contains("mail") && of(3).lines().count() == 7, "{}", of(3));
        assert_eq!(of(4), "# EOF\n");
    }
}
