//! Matching: which subscriptions an event is for.
//!
//! There may be thousands of subscriptions, and few match a given event, so they are not tested one
//! by one. The [`Catalog`] keeps them in buckets by event type, and within a bucket by one label or
//! tag that they require. An event visits only the buckets of its own type, labels and tags, and only
//! the subscriptions found there are tested in full.
//!
//! Any client that may register a subscription may register a filter, so the number of bytes that
//! filters may read is bounded ([`Budget`]). A filter that would have to read more counts as not
//! matching, and its subscription is reported in [`Matches::over_budget`].

mod bucket;
mod budget;
mod mismatch;
mod subject;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use self::bucket::{Bucket, Frequencies, Requirement};
pub(crate) use self::budget::Budget;
pub(crate) use self::mismatch::Mismatch;
pub(crate) use self::subject::Subject;
pub(crate) use self::work::{Allowance, Halt, STEP_BYTES, Stopped, Work};
use super::event_pattern::{self, EventPattern};
use super::filter::Filter;
use super::subscription::{Subscription, SubscriptionSpec};

/// An index of all active subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// Sorted by id. The buckets hold indexes into this list.
    subscriptions: Vec<Arc<Subscription>>,
    by_type: HashMap<String, Bucket>,
    /// The key is the prefix with its final dot, such as `user.`.
    by_prefix: HashMap<String, Bucket>,
    everything: Bucket,
}

/// The subscriptions that an event matches.
#[derive(Debug, Default)]
pub(crate) struct Matches<'a> {
    /// The matching subscriptions, sorted by id, without duplicates.
    pub matched: Vec<&'a Arc<Subscription>>,
    /// The subscriptions whose filter exceeded its budget. They count as not matching.
    pub over_budget: Vec<&'a Arc<Subscription>>,
}

impl Catalog {
    /// Builds the index. The caller must pass active subscriptions only.
    pub(crate) fn new(mut subscriptions: Vec<Arc<Subscription>>) -> Self {
        subscriptions.sort_by_key(|subscription| subscription.id);
        let frequencies = Frequencies::of(&subscriptions);
        let mut catalog = Self::default();
        for (index, subscription) in subscriptions.iter().enumerate() {
            let requirement = frequencies.rarest_requirement(&subscription.spec);
            catalog.insert(&subscription.spec, requirement, index);
        }
        catalog.subscriptions = subscriptions;
        catalog
    }

    /// Returns the subscriptions that match an event. The result depends only on the event, its
    /// budget and the subscriptions. The allowance decides only whether there is a result.
    pub(crate) fn matching(
        &self,
        subject: &Subject<'_>,
        budget: Budget,
        allowance: &mut Allowance<'_>,
    ) -> Result<Matches<'_>, Stopped> {
        let mut matched = Vec::new();
        let mut filtered = Vec::new();
        for index in self.candidate_indexes(subject) {
            allowance.spend(STEP_BYTES)?;
            let subscription = &self.subscriptions[index];
            match &subscription.spec.filter {
                _ if Mismatch::apart_from_filter(&subscription.spec, subject).is_some() => {}
                Some(filter) => filtered.push((subscription, filter)),
                None => matched.push(subscription),
            }
        }
        let mut rounds = Rounds { subject, budget, matched, allowance };
        let share = rounds.budget.share(filtered.len());
        let mut over_budget = rounds.run(filtered, share)?;
        let second_share = rounds.budget.share(over_budget.len());
        if second_share > share {
            over_budget = rounds.run(over_budget, second_share)?;
        }
        let mut matched = rounds.matched;
        matched.sort_unstable_by_key(|subscription| subscription.id);
        let over_budget = over_budget.into_iter().map(|(subscription, _)| subscription).collect();
        Ok(Matches { matched, over_budget })
    }

    /// Returns the number of subscriptions that must be tested in full for an event. A good index
    /// keeps it small.
    #[cfg(test)]
    fn candidates(&self, subject: &Subject<'_>) -> usize {
        self.candidate_indexes(subject).len()
    }

    fn insert(&mut self, spec: &SubscriptionSpec, requirement: Option<Requirement<'_>>, index: usize) {
        if spec.event_types.is_empty() {
            self.everything.insert(requirement, index);
        }
        for pattern in &spec.event_types {
            let bucket = match pattern {
                EventPattern::Exact(event_type) => self.by_type.entry(event_type.clone()).or_default(),
                EventPattern::Prefix(prefix) => self.by_prefix.entry(prefix.clone()).or_default(),
                EventPattern::Everything => &mut self.everything,
            };
            bucket.insert(requirement, index);
        }
    }

    fn candidate_indexes(&self, subject: &Subject<'_>) -> Vec<usize> {
        let mut indexes = Vec::new();
        if !event_pattern::is_system(subject.event_type) {
            self.everything.collect(subject, &mut indexes);
        }
        if let Some(event_type) = subject.event_type {
            let exact = self.by_type.get(event_type).into_iter();
            let prefixed = prefixes(event_type).filter_map(|prefix| self.by_prefix.get(prefix));
            exact.chain(prefixed).for_each(|bucket| bucket.collect(subject, &mut indexes));
        }
        indexes.sort_unstable();
        indexes.dedup();
        indexes
    }
}

/// Returns the prefix up to and including each dot: `a.b.c` gives `a.` and `a.b.`.
fn prefixes(event_type: &str) -> impl Iterator<Item = &str> {
    event_type.match_indices('.').map(|(dot, _)| &event_type[..=dot])
}

/// A subscription that matches an event if its filter does.
type Filtered<'a> = (&'a Arc<Subscription>, &'a Filter);

/// Runs the filters of one event, in up to two rounds.
struct Rounds<'c, 'w, 'a> {
    subject: &'w Subject<'w>,
    budget: Budget,
    matched: Vec<&'c Arc<Subscription>>,
    allowance: &'w mut Allowance<'a>,
}

impl<'c> Rounds<'c, '_, '_> {
    /// Runs filters, each of which may read `share` bytes. Returns the filters that would have had
    /// to read more.
    fn run(&mut self, filtered: Vec<Filtered<'c>>, share: u64) -> Result<Vec<Filtered<'c>>, Stopped> {
        let mut unfinished = Vec::new();
        for (subscription, filter) in filtered {
            let mut work = Work::within(share, self.allowance);
            let holds = filter.matches(self.subject, &mut work);
            self.budget.take(work.used());
            match holds {
                Ok(holds) => self.matched.extend(holds.then_some(subscription)),
                Err(Halt::OverBudget) => unfinished.push((subscription, filter)),
                Err(Halt::Stopped) => return Err(Stopped),
            }
        }
        Ok(unfinished)
    }
}

#[cfg(test)]
mod tests;
