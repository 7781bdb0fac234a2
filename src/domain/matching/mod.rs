//! Which subscriptions an event is for.
//!
//! There may be thousands of them and few that care, so they are not asked one by one. The
//! [`Catalog`] keeps them in buckets by the types that they are after, and within a bucket by
//! one label or tag that they insist on; an event visits only the buckets of its own type,
//! labels and tags, and only what it finds there is checked in full.
//!
//! Filters come from whoever may register a subscription, so what they may look at is bounded
//! ([`Budget`]). One that would have to look at more counts as not matching, and is named.

mod bucket;
mod budget;
mod subject;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use self::bucket::{Bucket, Frequencies, Mark};
pub use self::budget::Budget;
pub use self::subject::Subject;
pub use self::work::{Allowance, Halt, STEP_BYTES, Stopped, Work};
use super::event_pattern::{self, EventPattern};
use super::filter::Filter;
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

/// Which subscriptions an event is for.
#[derive(Debug, Default)]
pub struct Matches<'a> {
    /// Those that it is for, by id, each once.
    pub matched: Vec<&'a Arc<Subscription>>,
    /// Those whose filter would have had to look at more than it may: it is not for them.
    pub over_budget: Vec<&'a Arc<Subscription>>,
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

    /// Returns the subscriptions that an event is for. The result depends on the event, its budget
    /// and the subscriptions; the allowance decides only whether there is one.
    pub fn matching(
        &self,
        subject: &Subject<'_>,
        budget: Budget,
        allowance: &mut Allowance<'_>,
    ) -> Result<Matches<'_>, Stopped> {
        let mut matched = Vec::new();
        let mut filtered = Vec::new();
        for place in self.places(subject) {
            allowance.spend(STEP_BYTES)?;
            let subscription = &self.subscriptions[place];
            match &subscription.spec.filter {
                _ if !meets_the_rest(&subscription.spec, subject) => {}
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

/// A subscription that an event is for if its filter matches.
type Filtered<'a> = (&'a Arc<Subscription>, &'a Filter);

/// The filters of one event being run.
struct Rounds<'c, 'w, 'a> {
    subject: &'w Subject<'w>,
    budget: Budget,
    matched: Vec<&'c Arc<Subscription>>,
    allowance: &'w mut Allowance<'a>,
}

impl<'c> Rounds<'c, '_, '_> {
    /// Runs filters, each of which may look at `share` bytes. Returns those that would have had to
    /// look at more.
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

/// Whether a subscription wants an event, as far as its filter does not say.
fn meets_the_rest(spec: &SubscriptionSpec, subject: &Subject<'_>) -> bool {
    let has_label = |(name, value): (&String, &String)| subject.labels.get(name) == Some(value);
    spec.wants_type(subject.event_type)
        && spec.tags.as_slice().iter().all(|tag| subject.tags.contains(tag))
        && spec.labels.iter().all(has_label)
}

#[cfg(test)]
mod tests;
