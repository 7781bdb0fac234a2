//! Events are matched with subscriptions before they enter the publish batcher.
//!
//! A slow batch delays all publishers in it and behind it. Filters can be slow: there may be thousands of
//! them, and each may read a large payload many times. Each request therefore matches its own events
//! against the present snapshot of the subscriptions, and the batch only joins the results.
//!
//! Most events are matched inline, within `INLINE_WORK`. Events that need more work are matched on a
//! blocking thread, first in a slot for short work. Only those that exceed `SHORT_WORK` wait for one of
//! the few slots for long work, so a large event with cheap filters does not wait behind expensive ones.
//!
//! The snapshot may be outdated when the batch is stored. Then the statement stores nothing, and the batch
//! matches again the events that can be matched inline. The other events return to their callers
//! ([`Publishing::Outdated`]), which match them again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::domain::ids::NamespaceId;
use crate::domain::matching::{Allowance, Stopped};
use crate::error::Error;
use crate::store::tables::events::{FanOut, NamespacedEvent, StoredEvent};

use crate::engine::Engine;
use crate::engine::publish::repeats::{KeysOfBatch, Place, Placement, decided, results_of};
use crate::engine::publish::subscription_cache::SubscriptionSnapshot;
use crate::engine::publish::type_catalog::TypeCatalog;
use crate::engine::publish::{Publication, check_size, in_namespace};

/// The number of bytes that filters may read on a thread that serves other requests. Parsing a byte counts
/// as 8 bytes.
const INLINE_WORK: u64 = 256 * 1024;

/// The number of bytes that filters may read in a slot for short work.
const SHORT_WORK: u64 = 16 * 1024 * 1024;

/// The timeout of matching. The remaining time until the deadline of the request is left to the database.
pub(crate) const MATCH_WITHIN: Duration = Duration::from_secs(3);

/// The slots in which events are matched that need more than `INLINE_WORK`.
pub struct MatchingSlots {
    /// Slots for work within `SHORT_WORK`: one per core.
    pub short: Arc<Semaphore>,
    /// Slots for all other work: one per two cores, so long work does not occupy all cores.
    pub long: Arc<Semaphore>,
    /// The slot for checks of settings, which must not hold up publishers.
    pub check: Arc<Semaphore>,
}

impl Default for MatchingSlots {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let permits = |count: usize| Arc::new(Semaphore::new(count.max(1)));
        MatchingSlots { short: permits(cores), long: permits(cores / 2), check: permits(1) }
    }
}

/// The events of one request, with the subscriptions that they are pushed to.
#[derive(Clone)]
pub(crate) struct MatchedPublication {
    pub(crate) namespace: NamespaceId,
    pub(crate) events: Publication,
    pub(crate) fan_out: Arc<FanOut>,
    /// The event types that the events were checked against.
    pub(crate) types: Arc<TypeCatalog>,
}

/// The result of publishing the events of one request.
pub(crate) enum Publishing {
    Stored(Vec<StoredEvent>),
    /// The subscriptions have changed since the events were matched, and matching them again exceeds
    /// `INLINE_WORK`.
    Outdated,
}

/// Stops the matching on a blocking thread when its caller no longer waits for the result.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts a request in the gauge of long matchings until it is dropped.
struct LongMatching(Gauge);

impl LongMatching {
    fn begin(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for LongMatching {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Engine {
    /// Checks the events of one request, and matches them against the subscription snapshot of this server.
    pub(crate) async fn match_publication(
        &self,
        namespace: NamespaceId,
        events: Publication,
        match_by: Instant,
    ) -> Result<MatchedPublication, Error> {
        let snapshot = self.check_publication(namespace, &events, match_by).await?;
        let inline = snapshot.fan_out(&events, self.time(), &mut Allowance::of(INLINE_WORK));
        let fan_out = match inline {
            Ok(fan_out) => fan_out,
            // Boxed, because it is rare, and every publish would carry its size.
            Err(Stopped) => Box::pin(self.match_on_blocking_thread(&snapshot, &events, match_by)).await?,
        };
        check_size(&fan_out)?;
        let types = snapshot.types().clone();
        Ok(MatchedPublication { namespace, events, fan_out: Arc::new(fan_out), types })
    }

    /// Matches events on a blocking thread as soon as a slot is free. Fails with [`Error::Overloaded`] after
    /// `match_by`.
    async fn match_on_blocking_thread(
        &self,
        snapshot: &Arc<SubscriptionSnapshot>,
        events: &Publication,
        match_by: Instant,
    ) -> Result<FanOut, Error> {
        let permits = self.matching_slots();
        let matching = async {
            if let Some(fan_out) = self.match_in_slot(&permits.short, SHORT_WORK, snapshot, events).await? {
                Ok(Some(fan_out))
            } else {
                let _counted = LongMatching::begin(&self.metrics().long_matchings);
                self.match_in_slot(&permits.long, u64::MAX, snapshot, events).await
            }
        };
        match tokio::time::timeout_at(match_by, matching).await {
            Ok(Ok(Some(fan_out))) => Ok(fan_out),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) => Err(Error::Internal("matching stopped without a limit".into())),
            Err(_) => Err(Error::Overloaded),
        }
    }

    /// Matches events in one of the slots of `permits`. Returns `None` if that takes more than `work` bytes.
    async fn match_in_slot(
        &self,
        permits: &Arc<Semaphore>,
        work: u64,
        snapshot: &Arc<SubscriptionSnapshot>,
        events: &Publication,
    ) -> Result<Option<FanOut>, Error> {
        let stopping = |_| Error::unavailable("the server is stopping".into());
        let permit: OwnedSemaphorePermit = permits.clone().acquire_owned().await.map_err(stopping)?;
        let cancel = CancelOnDrop::default();
        let (snapshot, events, time) = (snapshot.clone(), events.clone(), self.time());
        let is_cancelled = cancel.0.clone();
        let matching = self.0.runtime.spawn_blocking(move || {
            let _permit = permit;
            snapshot.fan_out(&events, time, &mut Allowance::of(work).until(&is_cancelled)).ok()
        });
        matching.await.map_err(|panic| Error::Internal(format!("matching panicked: {panic}")))
    }

    /// Runs a check of settings on a blocking thread, one at a time on this server. Fails with [`Error::Overloaded`] after
    /// [`MATCH_WITHIN`].
    pub(crate) async fn in_check_slot<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let stopping = |_| Error::unavailable("the server is stopping".into());
        let working = async {
            let permit = self.matching_slots().check.clone().acquire_owned().await.map_err(stopping)?;
            let cancel = CancelOnDrop::default();
            let is_cancelled = cancel.0.clone();
            let running = self.0.runtime.spawn_blocking(move || {
                let _permit = permit;
                work(&is_cancelled)
            });
            running.await.map_err(|panic| Error::Internal(format!("matching panicked: {panic}")))
        };
        tokio::time::timeout(MATCH_WITHIN, working).await.unwrap_or(Err(Error::Overloaded))
    }

    /// Joins the results of requests that are stored together. Events that were matched against another
    /// snapshot than the present one of their namespace are matched again if `INLINE_WORK` is enough, and left out
    /// otherwise. Those that would have to be checked against other event types, and those of the namespaces in
    /// `unsettled`, are left out as well.
    pub(crate) fn join_fan_outs<'a>(
        &self,
        publications: impl Iterator<Item = &'a MatchedPublication>,
        unsettled: &BTreeSet<NamespaceId>,
    ) -> JoinedFanOut<'a> {
        // One snapshot of each namespace for the whole batch.
        let mut snapshots: HashMap<NamespaceId, Option<Arc<SubscriptionSnapshot>>> = HashMap::new();
        let mut joined = JoinedFanOut::default();
        for publication in publications {
            let namespace = publication.namespace;
            let cached = || self.subscription_cache().snapshot(namespace);
            let snapshot = snapshots.entry(namespace).or_insert_with(cached);
            let Some(snapshot) = snapshot.as_ref().filter(|_| !unsettled.contains(&namespace)) else {
                joined.leave_out();
                continue;
            };
            if publication.fan_out.generations.get(&namespace) == Some(&snapshot.generation()) {
                joined.add(publication, &publication.fan_out);
                continue;
            }
            if publication.types != *snapshot.types() {
                joined.leave_out();
                continue;
            }
            let rematched = snapshot.fan_out(&publication.events, self.time(), &mut Allowance::of(INLINE_WORK));
            match rematched {
                Ok(fan_out) => joined.add(publication, &fan_out),
                Err(Stopped) => joined.leave_out(),
            }
        }
        joined
    }
}

/// The events of several requests, with the subscriptions that they are pushed to.
#[derive(Default)]
pub(crate) struct JoinedFanOut<'a> {
    pub(crate) events: Vec<NamespacedEvent<'a>>,
    pub(crate) fan_out: FanOut,
    parts: Vec<Part>,
    keys: KeysOfBatch<'a>,
}

/// What becomes of one request in a batch.
enum Part {
    /// All of this many events are sent, the first under this number.
    Sent(usize, usize),
    /// Some events have the idempotency key of an event of another request.
    Shared(Vec<Place>),
    /// Its caller tries again.
    LeftOut,
}

impl<'a> JoinedFanOut<'a> {
    fn add(&mut self, publication: &'a MatchedPublication, fan_out: &FanOut) {
        let (first, events) = (self.events.len(), publication.events.as_slice());
        // A batch has far fewer requests than that.
        let request = i32::try_from(self.parts.len()).unwrap_or(i32::MAX);
        let has_keys = events.iter().any(|event| event.idempotency_key.is_some());
        let placement = match has_keys {
            true => self.keys.add(publication.namespace, events, request, first),
            false => Some(Placement { request, places: Vec::new() }),
        };
        let Some(Placement { request, places }) = placement else { return self.leave_out() };
        if places.iter().all(|place| matches!(place, Place::Sent(_))) {
            self.fan_out.append(fan_out, first);
            self.events.extend(in_namespace(publication.namespace, events, request));
            self.parts.push(Part::Sent(first, events.len()));
            return;
        }
        let numbers: Vec<Option<usize>> = places
            .iter()
            .map(|place| match place {
                Place::Sent(number) => Some(*number),
                Place::SameAs(_) => None,
            })
            .collect();
        self.fan_out.append_some(fan_out, &numbers);
        let all = in_namespace(publication.namespace, events, request);
        self.events
            .extend(all.into_iter().zip(&numbers).filter(|(_, number)| number.is_some()).map(|(event, _)| event));
        self.parts.push(Part::Shared(places));
    }

    fn leave_out(&mut self) {
        self.parts.push(Part::LeftOut);
    }

    /// Returns the result of each request from the stored events of all.
    pub(crate) fn distribute(self, stored: Vec<StoredEvent>) -> Vec<Publishing> {
        let publishing = |part: Part| match part {
            Part::Sent(first, count) => decided(stored.get(first..first + count).unwrap_or_default().to_vec()),
            Part::Shared(places) => results_of(&places, &stored),
            Part::LeftOut => None,
        };
        let outcomes = self.parts.into_iter().map(publishing);
        outcomes.map(|results| results.map_or(Publishing::Outdated, Publishing::Stored)).collect()
    }
}
