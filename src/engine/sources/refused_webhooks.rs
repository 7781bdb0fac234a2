//! Webhooks that were refused, counted in memory until they are recorded with their sources.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};

use crate::domain::ids::SourceKey;
use crate::domain::source::Rejection;
use crate::store::tables::sources::RefusedWebhooks;

/// The maximum number of sources whose refused webhooks are counted between two writes, more than a server has in
/// memory. Those of further ones are not counted.
const MAX_SOURCES: usize = 20_000;

/// The webhooks that were refused since they were last recorded.
#[derive(Default)]
pub struct RefusedWebhookCounts(Mutex<HashMap<SourceKey, RefusedWebhooks>>);

impl RefusedWebhookCounts {
    /// Counts a webhook that was refused.
    pub(crate) fn note(&self, source: SourceKey, rejection: &Rejection, now: DateTime<Utc>) {
        let last_refusal = rejection.as_str();
        add(&mut self.lock(), &RefusedWebhooks { source, count: 1, last_at: now, last_refusal });
    }

    /// Returns all counts in the order of their keys, and starts again.
    pub(super) fn take(&self) -> Vec<RefusedWebhooks> {
        let mut refused: Vec<RefusedWebhooks> = std::mem::take(&mut *self.lock()).into_values().collect();
        refused.sort_unstable_by_key(|each| each.source);
        refused
    }

    /// Adds counts that could not be recorded.
    pub(super) fn put_back(&self, refused: &[RefusedWebhooks]) {
        let mut counts = self.lock();
        refused.iter().for_each(|each| add(&mut counts, each));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SourceKey, RefusedWebhooks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(counts: &mut HashMap<SourceKey, RefusedWebhooks>, more: &RefusedWebhooks) {
    if let Some(counted) = counts.get_mut(&more.source) {
        counted.count += more.count;
        if more.last_at >= counted.last_at {
            (counted.last_at, counted.last_refusal) = (more.last_at, more.last_refusal);
        }
    } else if counts.len() < MAX_SOURCES {
        counts.insert(more.source, more.clone());
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::domain::ids::{NamespaceId, SourceId};

    #[test]
    fn counts_that_were_not_written_are_added_to_later_ones() {
        let (counts, source, first) = (RefusedWebhookCounts::default(), NamespaceId(1).source(SourceId(7)), Utc::now());
        counts.note(source, &Rejection::Mismatch, first);
        counts.note(source, &Rejection::Mismatch, first);
        let taken = counts.take();
        let later = first + TimeDelta::seconds(5);
        counts.note(source, &Rejection::Missing("X".into()), later);
        counts.put_back(&taken);
        let taken = counts.take();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].count, taken[0].last_at, taken[0].last_refusal), (3, later, "missing"));
        assert!(counts.take().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let counts = RefusedWebhookCounts::default();
        for id in 0..(MAX_SOURCES as i64 + 10) {
            counts.note(NamespaceId(1).source(SourceId(id)), &Rejection::Mismatch, Utc::now());
        }
        assert_eq!(counts.take().len(), MAX_SOURCES);
    }
}
