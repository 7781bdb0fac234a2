//! Subscriptions after the same types, told apart by one thing that they insist on.

use std::collections::HashMap;
use std::sync::Arc;

use super::Subject;
use crate::domain::subscription::{Subscription, SubscriptionSpec};

/// A label or a tag that a subscription insists on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Mark<'a> {
    Label(&'a str, &'a str),
    Tag(&'a str),
}

/// How many subscriptions insist on each mark.
pub(super) struct Frequencies<'a>(HashMap<Mark<'a>, usize>);

impl<'a> Frequencies<'a> {
    pub(super) fn of(subscriptions: &'a [Arc<Subscription>]) -> Self {
        let mut counts = HashMap::new();
        for mark in subscriptions.iter().flat_map(|subscription| marks(&subscription.spec)) {
            *counts.entry(mark).or_default() += 1;
        }
        Self(counts)
    }

    /// The mark that tells most: with `env=prod` on all and `tenant=7` on one, the latter. The
    /// first of equals, and labels before tags.
    pub(super) fn rarest_mark(&self, spec: &'a SubscriptionSpec) -> Option<Mark<'a>> {
        marks(spec).min_by_key(|mark| self.0.get(mark).copied().unwrap_or_default())
    }
}

fn marks(spec: &SubscriptionSpec) -> impl Iterator<Item = Mark<'_>> {
    let labels = spec.labels.iter().map(|(name, value)| Mark::Label(name, value));
    labels.chain(spec.tags.as_slice().iter().map(|tag| Mark::Tag(tag)))
}

/// Places of subscriptions, by their marks.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    by_label: HashMap<String, HashMap<String, Vec<usize>>>,
    by_tag: HashMap<String, Vec<usize>>,
    unmarked: Vec<usize>,
}

impl Bucket {
    pub(super) fn insert(&mut self, mark: Option<Mark<'_>>, place: usize) {
        let places = match mark {
            Some(Mark::Label(name, value)) => {
                self.by_label.entry(name.to_owned()).or_default().entry(value.to_owned()).or_default()
            }
            Some(Mark::Tag(tag)) => self.by_tag.entry(tag.to_owned()).or_default(),
            None => &mut self.unmarked,
        };
        places.push(place);
    }

    /// Adds the places of all that may want an event.
    pub(super) fn collect(&self, subject: &Subject<'_>, places: &mut Vec<usize>) {
        places.extend(&self.unmarked);
        if !self.by_label.is_empty() {
            let labelled = subject.labels.iter().filter_map(|(name, value)| self.by_label.get(name)?.get(value));
            places.extend(labelled.flatten());
        }
        if !self.by_tag.is_empty() {
            places.extend(subject.tags.iter().filter_map(|tag| self.by_tag.get(tag)).flatten());
        }
    }
}
