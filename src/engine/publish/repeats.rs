//! Events with the same idempotency key, of which one is stored.
//!
//! Usually the key is found in the database, by the statement that publishes ([`publish_events`]). That statement takes
//! no key twice, so this module sees to keys that come twice in one request ([`Distinct`]) or in one batch
//! ([`KeysOfBatch`]).
//!
//! [`publish_events`]: crate::store::tables::events::publish_events

use std::collections::HashMap;

use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::event::NewEvent;
use crate::domain::event_type::rejection::Rejection;
use crate::domain::idempotency::KeyOrigin;
use crate::domain::ids::NamespaceId;
use crate::domain::limits;
use crate::error::{Error, OutageKind};
use crate::store::tables::events::{KeyRule, StoredEvent};

use crate::engine::{Engine, RESPOND_WITHIN};

/// For how long a key is kept that is kept forever: a time that PostgreSQL can add to the present.
const FOREVER_SECONDS: f64 = 100.0 * 365.0 * 86_400.0;

impl Engine {
    /// Returns for how long idempotency keys are kept, in seconds.
    pub(crate) fn key_seconds(&self) -> f64 {
        self.settings().idempotency_retention.length().map_or(FOREVER_SECONDS, |length| length.as_secs_f64())
    }

    /// Returns how idempotency keys are stored.
    pub(super) fn key_rule(&self, are_new: bool) -> KeyRule {
        KeyRule { seconds: self.key_seconds(), are_new }
    }

    /// Reads the present state of events that a publish, which began at `began`, has repeated. Its other events are stored
    /// by then: a failure to read must not say that the publish had no effect, and must come before the time of the
    /// caller is over.
    pub(crate) async fn read_repeats<T>(
        &self,
        began: Instant,
        read: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let respond_by = began + RESPOND_WITHIN;
        let reading = async {
            let mut conn = self.database().connection_by(respond_by).await?;
            read(&mut conn).await
        };
        let too_late = |_| Error::outage(OutageKind::TimeUp, "its time was over before the repeated events were read");
        let read = tokio::time::timeout_at(respond_by, reading).await.map_err(too_late);
        read.flatten().map_err(Error::after_a_part)
    }
}

/// Returns the events of a request, or an error if one of them has a key that was used with another content. Then
/// none of them is stored.
pub(super) fn check_reuse(stored: Vec<StoredEvent>) -> Result<Vec<StoredEvent>, Error> {
    match stored.iter().position(|stored| stored.is_reused) {
        Some(index) => Err(Error::IdempotencyKeyReused { index, of: stored.len() }),
        None => Ok(stored),
    }
}

/// The events of a request of which each key is used once.
pub(super) struct Distinct {
    /// For each event, the place of the one that is sent for it, and whether it is itself.
    places: Vec<(usize, bool)>,
}

impl Distinct {
    /// Returns `None` if all events are distinct, which is usual. Fails if two have the same key and not the same content.
    pub(super) fn of(events: &[NewEvent]) -> Result<Option<Self>, Error> {
        if events.len() < 2 || events.iter().all(|event| event.idempotency_key.is_none()) {
            return Ok(None);
        }
        let (mut places, mut sent) = (Vec::with_capacity(events.len()), 0);
        let mut first_by_key: HashMap<(KeyOrigin, &str), (usize, &[u8])> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            let key = event.idempotency_key.as_ref();
            let first = key.and_then(|key| first_by_key.get(&(key.origin, key.key.as_str())));
            let place = match (key, first) {
                (Some(key), Some((_, fingerprint))) if key.fingerprint != *fingerprint => {
                    return Err(Error::IdempotencyKeyReused { index, of: events.len() });
                }
                (_, Some((place, _))) => (*place, false),
                (_, None) => (sent, true),
            };
            if let (Some(key), true) = (key, place.1) {
                first_by_key.insert((key.origin, key.key.as_str()), (sent, &key.fingerprint));
            }
            sent += usize::from(place.1);
            places.push(place);
        }
        Ok((sent < events.len()).then_some(Distinct { places }))
    }

    /// Returns the events to send.
    pub(super) fn events(&self, events: &[NewEvent]) -> Vec<NewEvent> {
        let sent = self.places.iter().zip(events).filter(|((_, is_first), _)| *is_first);
        sent.map(|(_, event)| event.clone()).collect()
    }

    /// Returns the results of all events from those that were sent.
    pub(super) fn repeat(&self, stored: &[StoredEvent]) -> Vec<StoredEvent> {
        let result = |(place, is_first): &(usize, bool)| {
            let stored = &stored[*place];
            if *is_first { stored.clone() } else { stored.repeated(true) }
        };
        self.places.iter().map(result).collect()
    }

    /// Converts an error about the events that were sent into one about all events.
    pub(super) fn about_all(&self, error: Error) -> Error {
        about_request(error, &self.places.iter().map(|(place, _)| Some(*place)).collect::<Vec<_>>())
    }
}

/// Converts an error about the events that were sent into one about all events of their request. `places` has for each of
/// these the place of the one that was sent for it, if there is one.
pub(super) fn about_request(error: Error, places: &[Option<usize>]) -> Error {
    match error {
        Error::IdempotencyKeyReused { index: place, .. } => {
            let index = places.iter().position(|sent_as| *sent_as == Some(place)).unwrap_or_default();
            Error::IdempotencyKeyReused { index, of: places.len() }
        }
        Error::EventsRejected(rejections) => {
            let by_place: HashMap<usize, &Rejection> = rejections.iter().map(|found| (found.index, found)).collect();
            let mut listed = 0;
            let rejection = |(index, place): (usize, &Option<usize>)| {
                let errors = &by_place.get(&(*place)?)?.errors;
                // A response lists about a thousand mistakes, and names every event that has one.
                let errors: Vec<_> = errors.iter().take(if listed < limits::BATCH { usize::MAX } else { 1 }).collect();
                listed += errors.len();
                Some(Rejection { index, errors: errors.into_iter().cloned().collect() })
            };
            Error::EventsRejected(places.iter().enumerate().filter_map(rejection).collect())
        }
        other => other,
    }
}

/// The keys of the events of a batch.
#[derive(Default)]
pub(super) struct KeysOfBatch<'a> {
    events: HashMap<(NamespaceId, i64, &'a str), BatchedKey<'a>>,
}

/// The key of an event of a batch.
#[derive(Clone, Copy)]
struct BatchedKey<'a> {
    /// The number of the event in the batch.
    number: usize,
    /// The request that the event is stored or refused with.
    request: i32,
    fingerprint: &'a [u8],
}

/// The places of the events of a request in a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// The request that they are stored or refused with: their own, or the one that they share keys with.
    pub(super) request: i32,
    pub(super) places: Vec<Place>,
}

/// What becomes of an event of a request in a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is sent under this number.
    Sent(usize),
    /// Another request of the batch sends an event with the same key.
    SameAs(SameKey),
}

/// An event of the batch that has the same key as one that is not sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SameKey {
    pub(super) event: usize,
    /// The fingerprint of that event, and of the one that is not sent.
    fingerprints: [Vec<u8>; 2],
}

impl<'a> KeysOfBatch<'a> {
    /// Adds the events of request number `request`. The first that is sent gets the number `first`. Returns `None`, and
    /// adds nothing, if the request has to wait for another batch:
    ///
    /// - It shares keys with several requests. It would have to be refused together with each of them.
    /// - It has several events, and one of them has the key of another request with another content. Whether it is
    ///   refused is not known yet, and then nothing of it may be stored.
    pub(super) fn add(
        &mut self,
        namespace: NamespaceId,
        events: &'a [NewEvent],
        request: i32,
        first: usize,
    ) -> Option<Placement> {
        let (mut places, mut added, mut number) = (Vec::with_capacity(events.len()), Vec::new(), first);
        let mut shared_with = None;
        for event in events {
            let key = event.idempotency_key.as_ref();
            let key = key.map(|key| ((namespace, key.origin.number(), key.key.as_str()), key.fingerprint.as_slice()));
            if let Some((other, own)) = key.and_then(|(key, own)| Some((self.events.get(&key)?, own))) {
                let is_conflict = events.len() > 1 && other.fingerprint != own;
                if is_conflict || *shared_with.get_or_insert(other.request) != other.request {
                    return None;
                }
                let fingerprints = [other.fingerprint.to_vec(), own.to_vec()];
                places.push(Place::SameAs(SameKey { event: other.number, fingerprints }));
            } else {
                added.extend(key.map(|(key, fingerprint)| (key, (number, fingerprint))));
                places.push(Place::Sent(number));
                number += 1;
            }
        }
        let request = shared_with.unwrap_or(request);
        let keyed = |(key, (number, fingerprint))| (key, BatchedKey { number, request, fingerprint });
        self.events.extend(added.into_iter().map(keyed));
        Some(Placement { request, places })
    }
}

impl SameKey {
    /// Returns what became of the event, or `None` if nothing did, because its request was refused. Then the other one has
    /// to be sent by itself.
    fn outcome(&self, stored: &[StoredEvent]) -> Option<StoredEvent> {
        let other = stored.get(self.event)?;
        let [of_event, own] = &self.fingerprints;
        let fingerprint = if other.is_stored { Some(of_event) } else { other.known_fingerprint.as_ref() };
        Some(other.repeated(fingerprint? == own))
    }
}

/// Returns the results of a request from those of its batch. Returns `None` if it was refused together with another
/// request that has the same key, and has to be sent again.
pub(super) fn results_of(places: &[Place], stored: &[StoredEvent]) -> Option<Vec<StoredEvent>> {
    let result = |place: &Place| match place {
        Place::Sent(number) => stored.get(*number).cloned(),
        Place::SameAs(same) => same.outcome(stored),
    };
    decided(places.iter().map(result).collect::<Option<_>>()?)
}

/// Returns the results of a request, or `None` if nothing was decided about some of its events: it was refused because of
/// another request.
pub(super) fn decided(results: Vec<StoredEvent>) -> Option<Vec<StoredEvent>> {
    let is_decided = |result: &StoredEvent| result.is_stored || result.is_repeated;
    let is_reused = results.iter().any(|result| result.is_reused);
    (is_reused || results.iter().all(is_decided)).then_some(results)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::domain::idempotency::IdempotencyKey;
    use crate::domain::ids::EventId;

    fn event(title: &str, key: Option<&str>) -> NewEvent {
        let mut event = NewEvent::titled(title.into());
        event.idempotency_key = key.map(|key| IdempotencyKey::of(KeyOrigin::Publishers, key.into(), &event));
        event
    }

    fn stored(id: i64) -> StoredEvent {
        StoredEvent {
            id: EventId(id),
            created_at: DateTime::UNIX_EPOCH,
            run_at: None,
            due_at: None,
            ready_seq: Some(id),
            enqueued: 1,
            is_stored: true,
            is_repeated: false,
            is_reused: false,
            known_fingerprint: None,
        }
    }

    #[test]
    fn a_key_that_comes_twice_in_a_request_is_sent_once_and_the_second_event_is_a_repeat() {
        let events = [event("a", Some("k")), event("b", None), event("a", Some("k")), event("c", Some("l"))];
        let distinct = Distinct::of(&events).unwrap().expect("two are the same");
        let titles: Vec<String> = distinct.events(&events).into_iter().map(|event| event.title).collect();
        assert_eq!(titles, ["a", "b", "c"]);
        let results = distinct.repeat(&[stored(1), stored(2), stored(3)]);
        let seen: Vec<_> = results.iter().map(|result| (result.id.0, result.is_repeated, result.ready_seq)).collect();
        assert_eq!(seen, [(1, false, Some(1)), (2, false, Some(2)), (1, true, None), (3, false, Some(3))]);
    }

    #[test]
    fn a_key_that_comes_twice_with_another_content_is_refused() {
        let events = [event("a", Some("k")), event("b", Some("k"))];
        assert!(matches!(Distinct::of(&events), Err(Error::IdempotencyKeyReused { index: 1, of: 2 })));
        let distinct = [event("a", None), event("a", None)];
        assert!(Distinct::of(&distinct).unwrap().is_none());
    }

    fn repeated(id: i64, of: &[NewEvent], is_reused: bool) -> StoredEvent {
        let known_fingerprint = of[0].idempotency_key.as_ref().map(|key| key.fingerprint.clone());
        StoredEvent { is_stored: false, is_repeated: true, is_reused, known_fingerprint, ..stored(id) }
    }

    fn results(places: &[Place], stored: &[StoredEvent]) -> Option<Vec<(i64, bool)>> {
        let results = results_of(places, stored)?;
        Some(results.iter().map(|result| (result.id.0, result.is_reused)).collect())
    }

    /// Adds a request of namespace 1, and returns the places of its events.
    fn add<'a>(keys: &mut KeysOfBatch<'a>, events: &'a [NewEvent], request: i32, first: usize) -> Option<Vec<Place>> {
        keys.add(NamespaceId(1), events, request, first).map(|placement| placement.places)
    }

    #[test]
    fn a_request_with_a_key_of_another_request_gets_its_result() {
        let (first, again, other) = ([event("a", Some("k"))], [event("a", Some("k"))], [event("b", Some("k"))]);
        let mut keys = KeysOfBatch::default();
        assert_eq!(add(&mut keys, &first, 0, 0), Some(vec![Place::Sent(0)]));
        let same = add(&mut keys, &again, 1, 1).expect("a place");
        let changed = add(&mut keys, &other, 2, 1).expect("a place");
        let elsewhere = keys.add(NamespaceId(2), &again, 3, 1);
        assert_eq!(elsewhere, Some(Placement { request: 3, places: vec![Place::Sent(1)] }), "another namespace");
        assert_eq!(results(&same, &[stored(7)]), Some(vec![(7, false)]));
        assert_eq!(results(&changed, &[stored(7)]), Some(vec![(7, true)]));
        assert_eq!(results(&same, &[repeated(5, &first, false)]), Some(vec![(5, false)]));
        assert_eq!(results(&same, &[repeated(5, &other, true)]), Some(vec![(5, true)]));
        assert_eq!(results(&changed, &[repeated(5, &other, true)]), Some(vec![(5, false)]), "as in the database");
        let refused = StoredEvent { is_stored: false, ..stored(9) };
        assert_eq!(results(&same, &[refused]), None, "its request was refused");
    }

    #[test]
    fn a_request_with_some_keys_of_another_request_sends_the_others() {
        let first = [event("a", Some("k"))];
        let several = [event("c", None), event("a", Some("k")), event("d", Some("l"))];
        let conflicting = [event("b", Some("k")), event("c", None)];
        let mut keys = KeysOfBatch::default();
        add(&mut keys, &first, 0, 0);
        let Placement { request, places } = keys.add(NamespaceId(1), &several, 1, 1).expect("places");
        assert_eq!(request, 0, "it is refused together with the first");
        assert!(matches!(places.as_slice(), [Place::Sent(1), Place::SameAs(_), Place::Sent(2)]), "{places:?}");
        assert_eq!(add(&mut keys, &conflicting, 2, 3), None);
        let all = [stored(7), stored(8), stored(9)];
        assert_eq!(results(&places, &all), Some(vec![(8, false), (7, false), (9, false)]));
        // The first request was refused for another of its keys, and this one with it.
        let refused = all.map(|stored| StoredEvent { is_stored: false, ..stored });
        assert_eq!(results(&places, &refused), None);
    }

    #[test]
    fn a_request_that_shares_keys_with_two_others_waits_and_leaves_no_key_behind() {
        let (a, b) = ([event("a", Some("k"))], [event("b", Some("l"))]);
        let of_both = [event("a", Some("k")), event("b", Some("l")), event("c", Some("m"))];
        let (unrelated, third) = ([event("d", None)], [event("c", Some("m"))]);
        let mut keys = KeysOfBatch::default();
        assert_eq!(add(&mut keys, &a, 0, 0), Some(vec![Place::Sent(0)]));
        assert_eq!(add(&mut keys, &b, 1, 1), Some(vec![Place::Sent(1)]));
        assert_eq!(add(&mut keys, &of_both, 2, 2), None);
        assert_eq!(add(&mut keys, &unrelated, 3, 2), Some(vec![Place::Sent(2)]));
        assert_eq!(add(&mut keys, &third, 4, 3), Some(vec![Place::Sent(3)]), "not the event of another request");
    }

    #[test]
    fn a_request_is_refused_with_the_first_of_a_chain_of_shared_keys() {
        let first = [event("a", Some("k"))];
        let second = [event("a", Some("k")), event("b", Some("l"))];
        let third = [event("b", Some("l")), event("c", None)];
        let mut keys = KeysOfBatch::default();
        add(&mut keys, &first, 0, 0);
        add(&mut keys, &second, 1, 1);
        let placement = keys.add(NamespaceId(1), &third, 2, 2).expect("places");
        assert_eq!(placement.request, 0);
    }
}
