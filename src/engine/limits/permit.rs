//! What the check of a publish returns, and where limits stand.

use crate::domain::event::NewEvent;
use crate::domain::publish_limits::{LimitOwner, PublishRate};
use crate::store::tables::events::StoredEvent;

use super::counts::Addition;

/// Where a rate stands on this server.
#[derive(Debug, Clone, Copy)]
pub struct RateState {
    pub owner: LimitOwner,
    pub rate: PublishRate,
    /// The number of events that this server accepts at once.
    pub available: i64,
    /// The seconds until it accepts the most.
    pub full_in: u64,
}

/// Where a count stands.
#[derive(Debug, Clone, Copy)]
pub struct CountState {
    pub limit: Option<i64>,
    /// `None` if there is no limit, because nothing is counted then.
    pub used: Option<i64>,
}

/// Where the limits of a namespace and of a key stand.
#[derive(Debug, Clone)]
pub struct LimitStates {
    pub namespace_rate: Option<RateState>,
    pub key_rate: Option<RateState>,
    pub waiting_events: CountState,
    pub stored_bytes: CountState,
    pub subscriptions: Option<i64>,
    pub sources: Option<i64>,
}

/// Allows one publish. What it adds counts as stored once [`PublishPermit::note_stored`] was called.
#[derive(Debug, Default)]
pub struct PublishPermit(Option<Box<Permitted>>);

#[derive(Debug, Default)]
pub(super) struct Permitted {
    pub(super) rates: Vec<RateState>,
    pub(super) addition: Option<Addition>,
}

impl PublishPermit {
    pub(super) fn of(permitted: Permitted) -> Self {
        PublishPermit(Some(Box::new(permitted)))
    }

    /// Returns where the rates stand to which the publish is subject.
    pub fn rates(&self) -> &[RateState] {
        self.0.as_ref().map_or(&[], |permitted| &permitted.rates)
    }

    /// Notes which of the events are stored. Those that were published before take no more room.
    pub fn note_stored(&mut self, events: &[NewEvent], stored: &[StoredEvent]) {
        let Some(addition) = self.addition() else { return };
        let new = events.iter().zip(stored).filter(|(_, stored)| stored.is_stored).map(|(event, _)| event);
        addition.stored = Some(amounts(new));
    }

    fn addition(&mut self) -> Option<&mut Addition> {
        self.0.as_mut()?.addition.as_mut()
    }
}

/// Returns how many events wait for workers, and how many bytes their payloads have.
pub(super) fn amounts<'a>(events: impl IntoIterator<Item = &'a NewEvent>) -> (i64, i64) {
    let (mut waiting, mut bytes) = (0, 0_usize);
    for event in events {
        waiting += i64::from(!event.tags.is_empty());
        bytes += event.payload.as_ref().map_or(0, |json| json.as_str().len());
    }
    (waiting, i64::try_from(bytes).unwrap_or(i64::MAX))
}
