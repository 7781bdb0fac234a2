//! Buckets: subscriptions to the same event types, indexed by one label or tag that they require.

use std::collections::HashMap;
use std::sync::Arc;

use super::Subject;
use crate::domain::subscription::{Subscription, SubscriptionSpec};

/// A label or a tag that a subscription requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Requirement<'a> {
    Label(&'a str, &'a str),
    Tag(&'a str),
}

/// The number of subscriptions with each requirement.
pub(super) struct Frequencies<'a>(HashMap<Requirement<'a>, usize>);

impl<'a> Frequencies<'a> {
    pub(super) fn of(subscriptions: &'a [Arc<Subscription>]) -> Self {
        let mut counts = HashMap::new();
        for requirement in subscriptions.iter().flat_map(|subscription| requirements(&subscription.spec)) {
            *counts.entry(requirement).or_default() += 1;
        }
        Self(counts)
    }

    /// Returns the most selective requirement: if all subscriptions require `env=prod` and one
    /// requires `tenant=7`, the latter. Among equals it is the first one, with labels before tags.
    pub(super) fn rarest_requirement(&self, spec: &'a SubscriptionSpec) -> Option<Requirement<'a>> {
        requirements(spec).min_by_key(|requirement| self.0.get(requirement).copied().unwrap_or_default())
    }
}

fn requirements(spec: &SubscriptionSpec) -> impl Iterator<Item = Requirement<'_>> {
    let labels = spec.labels.iter().map(|(name, value)| Requirement::Label(name, value));
    labels.chain(spec.tags.as_slice().iter().map(|tag| Requirement::Tag(tag)))
}

/// Indexes into the catalog's list of subscriptions, by one requirement of each subscription.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    by_label: HashMap<String, HashMap<String, Vec<usize>>>,
    by_tag: HashMap<String, Vec<usize>>,
    unrestricted: Vec<usize>,
}

impl Bucket {
    pub(super) fn insert(&mut self, requirement: Option<Requirement<'_>>, index: usize) {
        let indexes = match requirement {
            Some(Requirement::Label(name, value)) => {
                self.by_label.entry(name.to_owned()).or_default().entry(value.to_owned()).or_default()
            }
            Some(Requirement::Tag(tag)) => self.by_tag.entry(tag.to_owned()).or_default(),
            None => &mut self.unrestricted,
        };
        indexes.push(index);
    }

    /// Adds the indexes of all subscriptions that may match an event.
    pub(super) fn collect(&self, subject: &Subject<'_>, indexes: &mut Vec<usize>) {
        indexes.extend(&self.unrestricted);
        if !self.by_label.is_empty() {
            let labelled = subject.labels.iter().filter_map(|(name, value)| self.by_label.get(name)?.get(value));
            indexes.extend(labelled.flatten());
        }
        if !self.by_tag.is_empty() {
            indexes.extend(subject.tags.iter().filter_map(|tag| self.by_tag.get(tag)).flatten());
        }
    }
}
