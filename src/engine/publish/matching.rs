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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::domain::event::NewEvent;
use crate::domain::matching::{Allowance, Stopped};
use crate::error::Error;
use crate::store::tables::events::{FanOut, StoredEvent};

use crate::engine::Engine;
use crate::engine::publish::{Publication, check_size};

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
}

impl Default for MatchingSlots {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let permits = |count: usize| Arc::new(Semaphore::new(count.max(1)));
        MatchingSlots { short: permits(cores), long: permits(cores / 2) }
    }
}

/// The events of one request, with the subscriptions that they are pushed to.
#[derive(Clone)]
pub(crate) struct MatchedPublication {
    pub(crate) events: Publication,
    pub(crate) fan_out: Arc<FanOut>,
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
    /// Matches the events of one request against the subscription snapshot of this server.
    pub(crate) async fn match_publication(
        &self,
        events: Publication,
        match_by: Instant,
    ) -> Result<MatchedPublication, Error> {
        let inline =
            self.subscription_cache().snapshot().fan_out(&events, self.time(), &mut Allowance::of(INLINE_WORK));
        let fan_out = match inline {
            Ok(fan_out) => fan_out,
            Err(Stopped) => self.match_on_blocking_thread(&events, match_by).await?,
        };
        check_size(&fan_out)?;
        Ok(MatchedPublication { events, fan_out: Arc::new(fan_out) })
    }

    /// Matches events on a blocking thread as soon as a slot is free. Fails with [`Error::Overloaded`] after
    /// `match_by`.
    async fn match_on_blocking_thread(&self, events: &Publication, match_by: Instant) -> Result<FanOut, Error> {
        let permits = self.matching_slots();
        let matching = async {
            if let Some(fan_out) = self.match_in_slot(&permits.short, SHORT_WORK, events).await? {
                Ok(Some(fan_out))
            } else {
                let _counted = LongMatching::begin(&self.metrics().long_matchings);
                self.match_in_slot(&permits.long, u64::MAX, events).await
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
        events: &Publication,
    ) -> Result<Option<FanOut>, Error> {
        let stopping = |_| Error::unavailable("the server is stopping".into());
        let permit: OwnedSemaphorePermit = permits.clone().acquire_owned().await.map_err(stopping)?;
        let cancel = CancelOnDrop::default();
        let (snapshot, events, time) = (self.subscription_cache().snapshot(), events.clone(), self.time());
        let is_cancelled = cancel.0.clone();
        let matching = self.0.runtime.spawn_blocking(move || {
            let _permit = permit;
            snapshot.fan_out(&events, time, &mut Allowance::of(work).until(&is_cancelled)).ok()
        });
        matching.await.map_err(|panic| Error::Internal(format!("matching panicked: {panic}")))
    }

    /// Joins the results of requests that are stored together. Events that were matched against another
    /// snapshot than the present one are matched again if `INLINE_WORK` is enough, and left out otherwise.
    pub(crate) fn join_fan_outs<'a>(
        &self,
        publications: impl Iterator<Item = &'a MatchedPublication>,
    ) -> JoinedFanOut<'a> {
        let snapshot = self.subscription_cache().snapshot();
        let mut joined = JoinedFanOut::new(snapshot.generation());
        for publication in publications {
            if publication.fan_out.generation == snapshot.generation() {
                joined.add(publication, &publication.fan_out);
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
pub(crate) struct JoinedFanOut<'a> {
    pub(crate) events: Vec<&'a NewEvent>,
    pub(crate) fan_out: FanOut,
    /// The number of events of each request, or `None` for a request that was left out.
    counts: Vec<Option<usize>>,
}

impl<'a> JoinedFanOut<'a> {
    fn new(generation: i64) -> Self {
        let fan_out = FanOut { generation, ..FanOut::default() };
        JoinedFanOut { events: Vec::new(), fan_out, counts: Vec::new() }
    }

    fn add(&mut self, publication: &'a MatchedPublication, fan_out: &FanOut) {
        self.fan_out.append(fan_out, self.events.len());
        self.events.extend(publication.events.iter());
        self.counts.push(Some(publication.events.len()));
    }

    fn leave_out(&mut self) {
        self.counts.push(None);
    }

    /// Returns the result of each request from the stored events of all.
    pub(crate) fn distribute(self, stored: Vec<StoredEvent>) -> Vec<Publishing> {
        let mut stored = stored.into_iter();
        let publishing = |count: Option<usize>| match count {
            Some(count) => Publishing::Stored(stored.by_ref().take(count).collect()),
            None => Publishing::Outdated,
        };
        self.counts.into_iter().map(publishing).collect()
    }
}
