//! Filters that exceeded their budget, collected in memory until they are recorded.
//!
//! A publisher must not pay for a subscriber's filter, so overruns are not written in the transaction
//! of the publisher. There is one entry per subscription, regardless of the number of events that its
//! filter missed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::ids::SubscriptionKey;
use crate::error::Error;
use crate::store::tables::events::{FanOut, StoredEvent};
use crate::store::tables::filter_overruns::{FilterOverrun, record_filter_overruns};

use crate::engine::Engine;

/// The number of subscriptions that are collected between two writes. Overruns of further subscriptions are
/// not recorded.
const MAX_GATHERED: usize = 10_000;

/// The number of subscriptions that one statement writes.
const ROWS_PER_STATEMENT: usize = 1_000;

/// The number of subscriptions that are named in the log per statement.
const NAMED_IN_LOG: usize = 10;

/// The overruns by subscription since they were last recorded.
#[derive(Default)]
pub struct FilterOverruns {
    gathered: Mutex<BTreeMap<SubscriptionKey, FilterOverrun>>,
}

impl FilterOverruns {
    /// Adds the filters that exceeded their budget during a publication.
    pub(crate) fn note(&self, fan_out: &FanOut, stored: &[StoredEvent]) {
        if fan_out.over_budget.is_empty() {
            return;
        }
        let mut gathered = self.lock();
        for overrun in &fan_out.over_budget {
            let Some(event) = stored.get(overrun.last_event) else { continue };
            let overrun = FilterOverrun {
                namespace_id: overrun.subscription.namespace,
                subscription_id: overrun.subscription.id,
                events: overrun.events,
                last_at: event.created_at,
                last_event_id: event.id,
            };
            add(&mut gathered, overrun);
        }
    }

    /// Drops all overruns. Used after a restore of the database, when their events may no longer exist.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn take(&self) -> Vec<FilterOverrun> {
        std::mem::take(&mut *self.lock()).into_values().collect()
    }

    fn put_back(&self, overruns: Vec<FilterOverrun>) {
        let mut gathered = self.lock();
        for overrun in overruns {
            add(&mut gathered, overrun);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SubscriptionKey, FilterOverrun>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(gathered: &mut BTreeMap<SubscriptionKey, FilterOverrun>, overrun: FilterOverrun) {
    let key = overrun.namespace_id.subscription(overrun.subscription_id);
    if let Some(known) = gathered.get_mut(&key) {
        known.events += overrun.events;
        known.last_at = known.last_at.max(overrun.last_at);
        known.last_event_id = known.last_event_id.max(overrun.last_event_id);
    } else if gathered.len() < MAX_GATHERED {
        gathered.insert(key, overrun);
    }
}

impl Engine {
    /// Records the filters that exceeded their budget since the last call. Returns the number of filters. If
    /// a statement fails, its overruns and all later ones are kept for the next call.
    pub async fn record_filter_overruns(&self) -> Result<usize, Error> {
        let mut overruns = self.filter_overruns().take();
        let count = overruns.len();
        while !overruns.is_empty() {
            let remaining = overruns.split_off(overruns.len().min(ROWS_PER_STATEMENT));
            if let Err(error) = self.write_filter_overruns(&overruns).await {
                self.filter_overruns().put_back(overruns);
                self.filter_overruns().put_back(remaining);
                return Err(error);
            }
            log_overruns(&overruns);
            overruns = remaining;
        }
        Ok(count)
    }

    async fn write_filter_overruns(&self, overruns: &[FilterOverrun]) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        Ok(record_filter_overruns(&mut conn, overruns).await?)
    }
}

fn log_overruns(overruns: &[FilterOverrun]) {
    for overrun in overruns.iter().take(NAMED_IN_LOG) {
        log::warn!(
            subscription_id = overrun.subscription_id, event_id = overrun.last_event_id, events = overrun.events;
            "a filter exceeded its budget, and counts as not matching"
        );
    }
    if overruns.len() > NAMED_IN_LOG {
        let more = overruns.len() - NAMED_IN_LOG;
        log::warn!(subscriptions = more; "more filters exceeded their budget");
    }
}
