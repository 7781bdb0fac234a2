//! Events that their types do not accept, of which some were published before.
//!
//! A publisher that has received no response sends its event again. If the event was stored, the response must say so,
//! even if the type of the event has a stricter schema by now. Therefore the keys of rejected events are looked up before
//! a request is refused. Those that are repeats get the result of then and are not sent, so that none of them is stored
//! if its key is removed in the meantime. Requests whose events are accepted cost nothing more.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::domain::event::NewEvent;
use crate::domain::event_type::rejection::Rejection;
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::NamespaceId;
use crate::error::{Error, OutageKind};
use crate::store::connection::database::PATIENCE;
use crate::store::tables::events::StoredEvent;
use crate::store::tables::idempotency_keys::{KeyedEvent, find_events_by_keys};

use crate::engine::Engine;
use crate::engine::publish::Publication;
use crate::engine::publish::repeats::about_request;

impl Engine {
    /// Publishes the events of a request of which some were rejected, if all of these were published before.
    pub(super) async fn publish_without_repeats(
        &self,
        namespace: NamespaceId,
        events: Publication,
        mut rejections: Vec<Rejection>,
        began: Instant,
    ) -> Result<Vec<StoredEvent>, Error> {
        let mut known: BTreeMap<usize, StoredEvent> = BTreeMap::new();
        // Each round leaves out more events. A further one is needed only if not all rejections were listed, or the types
        // have changed again.
        loop {
            known.extend(self.find_repeats(namespace, &events, &rejections, began).await?);
            rejections.retain(|rejection| !known.contains_key(&rejection.index));
            if !rejections.is_empty() {
                self.metrics().events_rejected.inc_by(rejections.len() as u64);
                return Err(Error::EventsRejected(rejections));
            }
            let rest = Rest::of(&events, &known);
            if rest.events.is_empty() {
                return Ok(known.into_values().collect());
            }
            match self.publish_accepted(namespace, rest.events, began).await {
                Ok(stored) => {
                    let mut stored = stored.into_iter();
                    let result = |index| known.remove(&index).or_else(|| stored.next());
                    return Ok((0..events.len()).filter_map(result).collect());
                }
                Err(error) => match about_request(error, &rest.places) {
                    Error::EventsRejected(further) => rejections = further,
                    error => return Err(error),
                },
            }
        }
    }

    /// Returns those of the rejected events that were published before with the same content.
    async fn find_repeats(
        &self,
        namespace: NamespaceId,
        events: &[NewEvent],
        rejections: &[Rejection],
        began: Instant,
    ) -> Result<BTreeMap<usize, StoredEvent>, Error> {
        let keyed = rejections.iter().filter_map(|rejection| {
            let key = events.get(rejection.index)?.idempotency_key.as_ref()?;
            Some((rejection.index, key))
        });
        let (indexes, keys): (Vec<usize>, Vec<&IdempotencyKey>) = keyed.unzip();
        if keys.is_empty() {
            return Ok(BTreeMap::new());
        }
        let look_up = async {
            let mut conn = self.database().connection_by(began + PATIENCE).await?;
            Ok::<_, Error>(find_events_by_keys(&mut conn, namespace, &keys).await?)
        };
        let too_late = |_| Error::outage(OutageKind::TimeUp, "the keys of rejected events were not found in time");
        let found = tokio::time::timeout_at(began + PATIENCE, look_up).await.map_err(too_late)??;
        let repeat = |found: KeyedEvent| {
            let place = usize::try_from(found.place).ok()?.checked_sub(1)?;
            let is_same = keys.get(place)?.fingerprint == found.fingerprint;
            is_same.then(|| Some((*indexes.get(place)?, StoredEvent::known(found.event_id, found.created_at))))?
        };
        Ok(found.into_iter().filter_map(repeat).collect())
    }
}

/// The events of a request that are sent.
struct Rest {
    events: Publication,
    /// For each event of the request, its place among those that are sent.
    places: Vec<Option<usize>>,
}

impl Rest {
    fn of(all: &[NewEvent], known: &BTreeMap<usize, StoredEvent>) -> Self {
        let (mut events, mut places) = (Vec::new(), Vec::with_capacity(all.len()));
        for (index, event) in all.iter().enumerate() {
            let is_sent = !known.contains_key(&index);
            places.push(is_sent.then_some(events.len()));
            events.extend(is_sent.then(|| event.clone()));
        }
        Rest { events: Arc::new(events), places }
    }
}
