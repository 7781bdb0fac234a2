//! Events are matched before they are put into the publish batcher.
//!
//! A batch of the batcher holds up all publishers in it and behind it, so nothing in it may take long.
//! Filters may: there may be thousands of them, and they may look at a large payload many times
//! over. So each request matches its own events, against the copy of the subscriptions that there
//! is then, and the batch only joins the results.
//!
//! Most events are matched on the spot, within `INLINE_WORK`. What needs more goes to a thread
//! that may be blocked. There are two kinds of places for that: most work is over within
//! `SHORT_WORK`, and only what is not waits for one of the few places for long work. So a large
//! event with cheap filters does not wait for those with expensive ones.
//!
//! The copy may be an old one by the time the batch leaves. Then the statement stores nothing, and
//! the batch matches again what can be matched at once; the rest goes back to its callers, who
//! match it as before ([`Publishing::Outdated`]).

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

/// Bytes that filters may look at on a thread that serves others. Parsing a byte counts for eight.
const INLINE_WORK: u64 = 256 * 1024;

/// Bytes that filters may look at in a place for short work.
const SHORT_WORK: u64 = 16 * 1024 * 1024;

/// By when events must be matched. The rest of the time is the database's.
pub(crate) const MATCH_WITHIN: Duration = Duration::from_secs(3);

/// The places in which events are matched that cannot be matched at once.
pub struct MatchingSlots {
    /// For work that is soon over: one for each core.
    pub short: Arc<Semaphore>,
    /// For all other work: half as many, so that it never takes all cores.
    pub long: Arc<Semaphore>,
}

impl Default for MatchingSlots {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let permits = |count: usize| Arc::new(Semaphore::new(count.max(1)));
        MatchingSlots { short: permits(cores), long: permits(cores / 2) }
    }
}

/// The events of one request, and who gets them.
#[derive(Clone)]
pub struct MatchedPublication {
    pub(crate) events: Publication,
    pub(crate) fan_out: Arc<FanOut>,
}

/// What became of a request's events.
pub enum Publishing {
    /// They are stored.
    Stored(Vec<StoredEvent>),
    /// The subscriptions have changed since they were matched, and matching them again takes long.
    Outdated,
}

/// Tells a thread that nobody waits for its result any more.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One of the requests whose matching takes long, for as long as it does.
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
    /// Matches the events of one request. Returns who gets them, by the copy of the subscriptions
    /// that this server has.
    pub(crate) async fn match_publication(
        &self,
        events: Publication,
        match_by: Instant,
    ) -> Result<MatchedPublication, Error> {
        let at_once =
            self.subscription_cache().snapshot().fan_out(&events, self.time(), &mut Allowance::of(INLINE_WORK));
        let fan_out = match at_once {
            Ok(fan_out) => fan_out,
            Err(Stopped) => self.match_on_blocking_thread(&events, match_by).await?,
        };
        check_size(&fan_out)?;
        Ok(MatchedPublication { events, fan_out: Arc::new(fan_out) })
    }

    /// Matches events on threads that may be blocked, when there is a place for it.
    async fn match_on_blocking_thread(&self, events: &Publication, match_by: Instant) -> Result<FanOut, Error> {
        let permits = self.matching_slots();
        let matching = async {
            match self.match_in_slot(&permits.short, SHORT_WORK, events).await? {
                Some(fan_out) => Ok(Some(fan_out)),
                None => {
                    let _counted = LongMatching::begin(&self.metrics().long_matchings);
                    self.match_in_slot(&permits.long, u64::MAX, events).await
                }
            }
        };
        match tokio::time::timeout_at(match_by, matching).await {
            Ok(Ok(Some(fan_out))) => Ok(fan_out),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) => Err(Error::Internal("matching was stopped, and nobody stopped it".into())),
            Err(_) => Err(Error::Overloaded),
        }
    }

    /// Matches events in one of these places. Returns nothing if that takes more work than is
    /// allowed there.
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

    /// Joins the results of requests that are to be stored together. What was matched against
    /// another copy than the present one is matched again, if that can be done at once.
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
            let again = snapshot.fan_out(&publication.events, self.time(), &mut Allowance::of(INLINE_WORK));
            match again {
                Ok(fan_out) => joined.add(publication, &fan_out),
                Err(Stopped) => joined.leave_out(),
            }
        }
        joined
    }
}

/// The events of several requests, and who gets them.
pub struct JoinedFanOut<'a> {
    /// The events of all that are in it.
    pub(crate) events: Vec<&'a NewEvent>,
    /// Who gets them.
    pub(crate) fan_out: FanOut,
    /// How many events of each request are in it; none of one that was left out.
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

    /// Returns what became of each request, given what was stored.
    pub(crate) fn distribute(self, stored: Vec<StoredEvent>) -> Vec<Publishing> {
        let mut stored = stored.into_iter();
        let publishing = |count: Option<usize>| match count {
            Some(count) => Publishing::Stored(stored.by_ref().take(count).collect()),
            None => Publishing::Outdated,
        };
        self.counts.into_iter().map(publishing).collect()
    }
}
