//! What is counted per subscription.
//!
//! Only [`LABELLED`] subscriptions have their own label value, and [`LABELLED_PER_NAMESPACE`] of one namespace; all others
//! share the value `other`. The label value of a subscription that is deleted or paused is free for another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::OTHER;

/// The number of subscriptions that have their own label value.
const LABELLED: usize = 200;

/// The same for one namespace, so that it leaves room for others.
const LABELLED_PER_NAMESPACE: usize = 100;

/// What is counted per subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionCount {
    Enqueued,
    OverBudget,
    Sent,
    Succeeded,
    Retried,
    DeadLettered,
}

/// The name and the description of each count, in the order of [`SubscriptionCount`].
const FAMILIES: [(&str, &str); 6] = [
    ("deliveries_enqueued", "Deliveries created for subscribers"),
    ("filters_over_budget", "Events that a subscription did not match because its filter exceeded its budget"),
    ("pushes_sent", "Requests sent to subscribers"),
    ("pushes_succeeded", "Requests that subscribers accepted"),
    ("pushes_retried", "Requests that failed and will be retried"),
    ("pushes_dead_lettered", "Deliveries that became dead letters"),
];

/// The namespace and the id of a subscription.
pub(crate) type SubscriptionIds = (i32, i64);

/// Who has a label value.
#[derive(Debug, Default)]
struct Labelled {
    /// The subscriptions that have their own, with their namespaces.
    subscriptions: BTreeMap<i64, i32>,
    /// The namespaces whose active subscriptions are known. Others of theirs, whose last requests may still be under way,
    /// get none.
    known: BTreeSet<i32>,
}

impl Labelled {
    /// Returns whether another subscription of a namespace may have its own label value.
    fn has_room(&self, namespace_id: i32) -> bool {
        let of_namespace = self.subscriptions.values().filter(|namespace| **namespace == namespace_id).count();
        self.subscriptions.len() < LABELLED && of_namespace < LABELLED_PER_NAMESPACE
    }

    /// Returns the label of a subscription.
    fn of(&self, subscription_id: i64) -> SubscriptionLabel {
        match self.subscriptions.contains_key(&subscription_id) {
            true => SubscriptionLabel::of(subscription_id),
            false => SubscriptionLabel::other(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SubscriptionLabel {
    /// The id of the subscription, or `other`.
    subscription: String,
}

impl SubscriptionLabel {
    fn of(subscription_id: i64) -> Self {
        SubscriptionLabel { subscription: subscription_id.to_string() }
    }

    fn other() -> Self {
        SubscriptionLabel { subscription: OTHER.to_owned() }
    }
}

/// The counters of all subscriptions.
#[derive(Debug)]
pub(crate) struct SubscriptionCounters {
    /// In the order of [`FAMILIES`].
    families: [Family<SubscriptionLabel, Counter>; FAMILIES.len()],
    labelled: Mutex<Labelled>,
}

impl SubscriptionCounters {
    pub(super) fn new() -> Self {
        SubscriptionCounters { families: FAMILIES.map(|_| Family::default()), labelled: Mutex::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        for ((name, help), family) in FAMILIES.into_iter().zip(&self.families) {
            registry.register(name, help, family.clone());
        }
    }

    /// Adds `count` to what is counted of a subscription.
    pub(crate) fn count(&self, what: SubscriptionCount, subscription: SubscriptionIds, count: u64) {
        let mut labelled = self.labelled();
        let label = match labelled.known.contains(&subscription.0) {
            true => labelled.of(subscription.1),
            false => self.label(&mut labelled, subscription),
        };
        // Under the lock, because a series that is removed in between would come back and stay.
        self.families[what as usize].get_or_create(&label).inc_by(count);
    }

    /// Creates the series of the active subscriptions of a namespace, each at zero, and removes those of its former ones.
    /// Of concurrent calls the last one asks for them last, so it knows them best.
    pub(crate) fn set(&self, namespace_id: i32, active: impl FnOnce() -> BTreeSet<i64>) {
        let mut labelled = self.labelled();
        let subscription_ids = active();
        labelled.known.insert(namespace_id);
        labelled.subscriptions.retain(|id, namespace| {
            let is_kept = *namespace != namespace_id || subscription_ids.contains(id);
            if !is_kept {
                self.remove_series(&SubscriptionLabel::of(*id));
            }
            is_kept
        });
        for id in subscription_ids {
            self.label(&mut labelled, (namespace_id, id));
        }
    }

    /// Returns the subscriptions of a namespace that have their own label value.
    pub(super) fn labelled_of(&self, namespace_id: i32) -> BTreeSet<i64> {
        let of_namespace = |(id, namespace): (&i64, &i32)| (*namespace == namespace_id).then_some(*id);
        self.labelled().subscriptions.iter().filter_map(of_namespace).collect()
    }

    fn labelled(&self) -> MutexGuard<'_, Labelled> {
        self.labelled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the label of a subscription, whose series exist then.
    fn label(&self, labelled: &mut Labelled, (namespace_id, subscription_id): SubscriptionIds) -> SubscriptionLabel {
        if !labelled.subscriptions.contains_key(&subscription_id) && labelled.has_room(namespace_id) {
            labelled.subscriptions.insert(subscription_id, namespace_id);
            self.create_series(&SubscriptionLabel::of(subscription_id));
            if !labelled.has_room(namespace_id) {
                self.create_series(&SubscriptionLabel::other());
            }
        }
        labelled.of(subscription_id)
    }

    /// Creates all series of a label. Functions such as `increase` ignore the first value of a series: if it appeared with
    /// the first burst of failures, no alert would see that burst.
    fn create_series(&self, label: &SubscriptionLabel) {
        for family in &self.families {
            drop(family.get_or_create(label));
        }
    }

    fn remove_series(&self, label: &SubscriptionLabel) {
        for family in &self.families {
            family.remove(label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn every_count_has_the_family_of_its_name() {
        let metrics = Metrics::new();
        let families = [
            (SubscriptionCount::Enqueued, "deliveries_enqueued"),
            (SubscriptionCount::OverBudget, "filters_over_budget"),
            (SubscriptionCount::Sent, "pushes_sent"),
            (SubscriptionCount::Succeeded, "pushes_succeeded"),
            (SubscriptionCount::Retried, "pushes_retried"),
            (SubscriptionCount::DeadLettered, "pushes_dead_lettered"),
        ];
        for (count, (what, _)) in (1..).zip(families) {
            metrics.subscriptions.count(what, (1, 7), count);
        }
        let text = metrics.text().unwrap();
        for (count, (_, name)) in (1..).zip(families) {
            assert!(text.contains(&format!("waybill_{name}_total{{subscription=\"7\"}} {count}\n")), "{name}: {text}");
        }
    }

    #[test]
    fn subscriptions_beyond_the_limit_share_one_label() {
        let metrics = Metrics::new();
        for id in 0..LABELLED as i64 + 50 {
            metrics.subscriptions.count(SubscriptionCount::Sent, (id as i32 % 4, id), 1);
        }
        metrics.subscriptions.count(SubscriptionCount::Sent, (0, 0), 1);
        let text = metrics.text().unwrap();
        assert_eq!(text.matches("waybill_pushes_sent_total{").count(), LABELLED + 1);
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"other\"} 50\n"), "{text}");
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"0\"} 2\n"));
    }

    #[test]
    fn a_namespace_with_many_subscriptions_leaves_labels_for_others() {
        let metrics = Metrics::new();
        metrics.subscriptions.set(1, || (0..LABELLED as i64 + 50).collect());
        metrics.subscriptions.set(2, || [1_000].into());
        let text = metrics.text().unwrap();
        assert_eq!(text.matches("waybill_pushes_sent_total{").count(), LABELLED_PER_NAMESPACE + 2);
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"1000\"} 0\n"), "{text}");
    }

    #[test]
    fn a_subscription_that_is_gone_leaves_its_label_to_another() {
        let metrics = Metrics::new();
        metrics.subscriptions.set(1, || (0..LABELLED_PER_NAMESPACE as i64).collect());
        metrics.subscriptions.count(SubscriptionCount::Sent, (1, 0), 1);
        metrics.subscriptions.set(2, || [500].into());
        metrics.subscriptions.set(1, || (1..=LABELLED_PER_NAMESPACE as i64).collect());
        let text = metrics.text().unwrap();
        assert!(!text.contains("{subscription=\"0\"}"), "{text}");
        for kept in [1, LABELLED_PER_NAMESPACE, 500] {
            assert!(text.contains(&format!("waybill_pushes_sent_total{{subscription=\"{kept}\"}} 0\n")), "{text}");
        }
    }

    #[test]
    fn the_last_request_of_a_subscription_that_is_gone_does_not_bring_its_series_back() {
        let metrics = Metrics::new();
        metrics.subscriptions.set(1, || [7, 8].into());
        metrics.subscriptions.set(1, || [8].into());
        metrics.subscriptions.count(SubscriptionCount::Sent, (1, 7), 1);
        let text = metrics.text().unwrap();
        assert!(!text.contains("{subscription=\"7\"}"), "{text}");
        assert!(text.contains("waybill_pushes_sent_total{subscription=\"other\"} 1\n"), "{text}");
    }

    #[test]
    fn subscriptions_have_their_series_before_anything_is_counted() {
        let metrics = Metrics::new();
        metrics.subscriptions.set(1, || (0..LABELLED_PER_NAMESPACE as i64 - 1).collect());
        assert!(!metrics.text().unwrap().contains("\"other\""));
        metrics.subscriptions.set(1, || (0..LABELLED_PER_NAMESPACE as i64 + 50).collect());
        let text = metrics.text().unwrap();
        for (family, _) in FAMILIES {
            assert_eq!(text.matches(&format!("waybill_{family}_total{{")).count(), LABELLED_PER_NAMESPACE + 1);
            assert!(text.contains(&format!("waybill_{family}_total{{subscription=\"17\"}} 0\n")), "{text}");
            assert!(text.contains(&format!("waybill_{family}_total{{subscription=\"other\"}} 0\n")), "{text}");
        }
    }
}
