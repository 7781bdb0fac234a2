//! Which subscriptions an event is for.
//!
//! There may be thousands of them and few that care, so they are not asked one by one. The
//! [`Catalog`] keeps them in buckets by the types that they are after, and within a bucket by
//! one label or tag that they insist on; an event visits only the buckets of its own type,
//! labels and tags, and only what it finds there is checked in full.

mod bucket;
mod subject;

use std::collections::HashMap;
use std::sync::Arc;

use self::bucket::{Bucket, Frequencies, Mark};
pub use self::subject::Subject;
use super::event_pattern::{self, EventPattern};
use super::subscription::{Subscription, SubscriptionSpec};

/// All active subscriptions, ready to be asked.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Sorted by id; buckets hold places in this list.
    subscriptions: Vec<Arc<Subscription>>,
    by_type: HashMap<String, Bucket>,
    /// By the prefix with its last dot.
    by_prefix: HashMap<String, Bucket>,
    everything: Bucket,
}

impl Catalog {
    /// Builds the index. Inactive subscriptions are not to be passed in.
    pub fn new(mut subscriptions: Vec<Arc<Subscription>>) -> Self {
        subscriptions.sort_by_key(|subscription| subscription.id);
        let frequencies = Frequencies::of(&subscriptions);
        let mut catalog = Self::default();
        for (place, subscription) in subscriptions.iter().enumerate() {
            let mark = frequencies.rarest_mark(&subscription.spec);
            catalog.insert(&subscription.spec, mark, place);
        }
        catalog.subscriptions = subscriptions;
        catalog
    }

    /// The subscriptions that an event is for, by id, each once.
    pub fn matching(&self, subject: &Subject<'_>) -> Vec<&Arc<Subscription>> {
        let candidates = self.places(subject).into_iter().map(|place| &self.subscriptions[place]);
        candidates.filter(|subscription| is_for(&subscription.spec, subject)).collect()
    }

    /// How many subscriptions have to be checked in full for an event: what the index is for.
    pub fn candidates(&self, subject: &Subject<'_>) -> usize {
        self.places(subject).len()
    }

    /// How many subscriptions there are.
    pub fn len(&self) -> usize {
        self.subscriptions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }

    fn insert(&mut self, spec: &SubscriptionSpec, mark: Option<Mark<'_>>, place: usize) {
        if spec.event_types.is_empty() {
            self.everything.insert(mark, place);
        }
        for pattern in &spec.event_types {
            let bucket = match pattern {
                EventPattern::Exact(event_type) => self.by_type.entry(event_type.clone()).or_default(),
                EventPattern::Prefix(prefix) => self.by_prefix.entry(prefix.clone()).or_default(),
                EventPattern::Everything => &mut self.everything,
            };
            bucket.insert(mark, place);
        }
    }

    fn places(&self, subject: &Subject<'_>) -> Vec<usize> {
        let mut places = Vec::new();
        if !event_pattern::is_system(subject.event_type) {
            self.everything.collect(subject, &mut places);
        }
        if let Some(event_type) = subject.event_type {
            let exact = self.by_type.get(event_type).into_iter();
            let prefixed = prefixes(event_type).filter_map(|prefix| self.by_prefix.get(prefix));
            exact.chain(prefixed).for_each(|bucket| bucket.collect(subject, &mut places));
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// Everything up to and including a dot, for each dot: `a.b.c` gives `a.` and `a.b.`.
fn prefixes(event_type: &str) -> impl Iterator<Item = &str> {
    event_type.match_indices('.').map(|(dot, _)| &event_type[..=dot])
}

/// Whether a subscription wants an event. The filter comes last: it may have to read the payload.
fn is_for(spec: &SubscriptionSpec, subject: &Subject<'_>) -> bool {
    let has_label = |(name, value): (&String, &String)| subject.labels.get(name) == Some(value);
    spec.wants_type(subject.event_type)
        && spec.tags.as_slice().iter().all(|tag| subject.tags.contains(tag))
        && spec.labels.iter().all(has_label)
        && spec.filter.as_ref().is_none_or(|filter| filter.matches(subject))
}

#[cfg(test)]
mod tests;
