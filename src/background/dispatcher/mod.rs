//! The dispatcher: the built-in worker that pushes events to those who subscribed.
//!
//! It sleeps until the bell is rung for a subscription. Then it asks, for all that may have
//! something, whether anything may be sent to them now (they are active, their endpoint is not
//! paused, their rate is not used up), claims as much as there are free [`slots::Slots`], and
//! starts an [`attempt`] for each. While it is at the database, slots fall free and bells ring, so
//! that one round serves many: the busier it is, the fewer statements a push costs.
//!
//! A subscription stays on the list of the busy ones until a claim finds less than it asked
//! for. One that may not be sent to now is put on the list of later ones, with the time at which
//! to look again; nothing of it is claimed meanwhile, and no attempt is spent.

pub mod attempt;
pub mod failing;
pub mod slots;
mod writing;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::report;
use crate::domain::ids::SubscriptionId;
use crate::domain::subscription::SubscriptionSpec;
use crate::engine::Engine;
use crate::engine::publish::subscription_cache::Subscriber;
use crate::engine::push::{ClaimedPush, PushClaim};
use crate::error::Error;
use crate::store::tables::endpoints::EndpointGate;
use crate::webhook::Client;

use attempt::Attempt;
use failing::Failing;
use slots::{Slot, Slots};

/// How much longer than a request may take its claim holds: time to put the outcome on record.
const LEASE_MARGIN_SECONDS: i32 = 15;

/// How many subscriptions are looked at in one round.
const GATES_PER_ROUND: usize = 500;

/// How many deliveries are claimed in one round.
const CLAIMS_PER_ROUND: usize = 200;

/// The least time from one round that found something to the next. Meanwhile slots fall free and
/// bells ring, so that a round serves many; whoever rings after a quiet while is served at once.
const PACE: Duration = Duration::from_millis(5);

/// When to look again at a subscription whose endpoint another server is just trying.
const PROBED_ELSEWHERE: Duration = Duration::from_secs(1);

/// Between two rounds while the database is away.
const TROUBLE_PAUSE: Duration = Duration::from_millis(500);

/// How long requests under way may take once the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// What the dispatcher has to know.
#[derive(Debug, Clone, Copy)]
pub struct DispatcherSettings {
    /// Requests under way at once.
    pub max_pushes: usize,
}

/// The dispatcher of one server.
pub struct Dispatcher {
    engine: Engine,
    client: Client,
    slots: Arc<Slots>,
    failing: Arc<Failing>,
    attempts: TaskTracker,
    busy: BTreeSet<SubscriptionId>,
    later: BTreeMap<SubscriptionId, Instant>,
    /// Who got the last slot: those after it come first in the next round.
    last_served: SubscriptionId,
}

/// What may be sent to one subscription in this round.
struct Opening {
    claim: PushClaim,
    subscriber: Subscriber,
    gate: EndpointGate,
    is_probe: bool,
    rate: Option<f64>,
}

impl Dispatcher {
    /// A dispatcher that has sent nothing yet, and will look at everybody first.
    pub fn new(engine: Engine, client: Client, settings: DispatcherSettings) -> Self {
        let slots = Slots::new(settings.max_pushes, engine.clone());
        engine.dispatch_signal().attend();
        engine.dispatch_signal().signal(None);
        Dispatcher {
            engine,
            client,
            slots,
            failing: Arc::default(),
            attempts: TaskTracker::new(),
            busy: BTreeSet::new(),
            later: BTreeMap::new(),
            last_served: SubscriptionId(0),
        }
    }

    /// One round; answers how many attempts it started.
    pub async fn run_once(&mut self) -> Result<usize, Error> {
        self.hear_bell().await?;
        let candidates = self.candidates();
        if candidates.is_empty() || self.slots.all_taken() {
            return Ok(0);
        }
        let gates = self.engine.read_endpoint_gates(&candidates).await?;
        // After a restore there may be no such subscription any more.
        let present: BTreeSet<SubscriptionId> = gates.iter().map(|gate| gate.subscription_id).collect();
        for id in candidates.iter().filter(|id| !present.contains(id)) {
            self.busy.remove(id);
        }
        if gates.iter().any(|gate| self.is_news(gate)) {
            self.engine.reload_subscribers().await?;
        }
        let mut openings = Vec::new();
        for gate in gates {
            openings.extend(self.open(gate).await?);
        }
        let all_served = self.share_slots(&mut openings);
        self.keep_pace(&mut openings).await?;
        let (openings, shut): (Vec<_>, Vec<_>) = openings.into_iter().partition(|opening| opening.claim.limit > 0);
        let unused: Vec<&str> = shut.iter().filter(|shut| shut.is_probe).map(|shut| shut.gate.url.as_str()).collect();
        if !unused.is_empty() {
            self.engine.return_probes(&unused).await?;
        }
        let started = self.claim_and_start(openings).await?;
        if started == 0 && !all_served {
            // Those who got the slots had no use for them, and nothing else would wake us.
            self.engine.dispatch_signal().nudge();
        }
        Ok(started)
    }

    /// Whom to look at in this round: not always the same, if there are many.
    fn candidates(&self) -> Vec<SubscriptionId> {
        let first = self.busy.range((Bound::Excluded(self.last_served), Bound::Unbounded));
        let all = first.chain(self.busy.range(..=self.last_served)).copied();
        all.filter(|id| self.has_free_slot(*id)).take(GATES_PER_ROUND).collect()
    }

    fn has_free_slot(&self, id: SubscriptionId) -> bool {
        let known = self.engine.subscription_cache().get(id);
        known.is_none_or(|subscriber| self.slots.free(id, subscriber.subscription.spec.max_concurrency) > 0)
    }

    /// Whether this server does not know the subscription as it is now.
    fn is_news(&self, gate: &EndpointGate) -> bool {
        let known = self.engine.subscription_cache().get(gate.subscription_id).map(|s| s.subscription.version);
        gate.is_active && known != Some(gate.version)
    }

    async fn hear_bell(&mut self) -> Result<(), Error> {
        let signaled = self.engine.dispatch_signal().take();
        self.busy.extend(signaled.subscription_ids);
        if signaled.for_all {
            // Whoever is rung for while the database is away must not be forgotten.
            self.engine.reload_subscribers().await.inspect_err(|_| self.engine.dispatch_signal().signal(None))?;
            self.busy.extend(self.engine.subscription_cache().ids());
        }
        let now = Instant::now();
        let due: Vec<SubscriptionId> = self.later.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.later.remove(&id);
            self.busy.insert(id);
        }
        Ok(())
    }

    /// Whether anything may be sent to a subscription now; if not, it is left for later, or for
    /// whenever the bell is rung for it.
    async fn open(&mut self, gate: EndpointGate) -> Result<Option<Opening>, Error> {
        let id = gate.subscription_id;
        let Some(subscriber) = self.engine.subscription_cache().get(id).filter(|_| gate.is_active) else {
            self.busy.remove(&id);
            return Ok(None);
        };
        if let Some(seconds) = gate.paused_for {
            self.leave_for_later(id, Duration::from_secs_f64(seconds.clamp(0.0, 60.0)));
            return Ok(None);
        }
        let spec = &subscriber.subscription.spec;
        let lease_seconds = lease_seconds_of(spec);
        let is_probe = gate.is_open;
        if is_probe && !self.engine.take_probe(&gate.url, f64::from(lease_seconds)).await? {
            self.leave_for_later(id, PROBED_ELSEWHERE);
            return Ok(None);
        }
        let limit = if is_probe { 1 } else { self.slots.free(id, spec.max_concurrency) as i64 };
        let rate = spec.rate_per_second;
        let version = subscriber.subscription.version;
        let claim = PushClaim { subscription_id: id, version, limit, lease_seconds };
        Ok(Some(Opening { claim, subscriber, gate, is_probe, rate }))
    }

    fn leave_for_later(&mut self, id: SubscriptionId, wait: Duration) {
        self.busy.remove(&id);
        self.later.insert(id, Instant::now() + wait);
    }

    /// Where there are fewer slots than could be used, whoever has the fewest gets the next one;
    /// of equals, those who come after whoever was served last. Answers whether everybody got one.
    fn share_slots(&mut self, openings: &mut [Opening]) -> bool {
        openings
            .sort_by_key(|opening| (opening.claim.subscription_id <= self.last_served, opening.claim.subscription_id));
        let wanted: Vec<i64> = openings.iter_mut().map(|opening| std::mem::take(&mut opening.claim.limit)).collect();
        let taken = |index: usize| self.slots.taken(openings[index].claim.subscription_id);
        let mut queue: BinaryHeap<Reverse<(usize, usize)>> =
            (0..wanted.len()).filter(|index| wanted[*index] > 0).map(|index| Reverse((taken(index), index))).collect();
        for _ in 0..self.slots.free_in_all().min(CLAIMS_PER_ROUND) {
            let Some(Reverse((taken, index))) = queue.pop() else { break };
            let claim = &mut openings[index].claim;
            claim.limit += 1;
            self.last_served = claim.subscription_id;
            if claim.limit < wanted[index] {
                queue.push(Reverse((taken + 1, index)));
            }
        }
        openings.iter().zip(wanted).all(|(opening, wanted)| opening.claim.limit > 0 || wanted == 0)
    }

    async fn keep_pace(&mut self, openings: &mut [Opening]) -> Result<(), Error> {
        let wanted: Vec<(SubscriptionId, f64, i64)> = openings
            .iter()
            .filter_map(|opening| Some((opening.claim.subscription_id, opening.rate?, opening.claim.limit)))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for grant in self.engine.take_from_rates(&wanted).await? {
            let Some(opening) = openings.iter_mut().find(|o| o.claim.subscription_id == grant.subscription_id) else {
                continue;
            };
            if grant.granted < opening.claim.limit {
                self.leave_for_later(grant.subscription_id, Duration::from_secs_f64(grant.next_in.clamp(0.001, 60.0)));
            }
            opening.claim.limit = grant.granted;
        }
        Ok(())
    }

    async fn claim_and_start(&mut self, openings: Vec<Opening>) -> Result<usize, Error> {
        if openings.is_empty() {
            return Ok(0);
        }
        let claims: Vec<PushClaim> = openings.iter().map(|opening| opening.claim).collect();
        let claimed_at = Instant::now();
        let claimed = self.engine.claim_pushes(&claims).await?;
        let started = claimed.len();
        let mut by_subscription: HashMap<SubscriptionId, Vec<ClaimedPush>> = HashMap::new();
        for push in claimed {
            by_subscription.entry(push.subscription_id).or_default().push(push);
        }
        // All that was claimed is sent before anything else can go wrong.
        let mut unused = Vec::new();
        for opening in openings {
            let pushes = by_subscription.remove(&opening.claim.subscription_id).unwrap_or_default();
            let found = pushes.len() as i64;
            for push in pushes {
                self.start(push, &opening, claimed_at);
            }
            if found < opening.claim.limit {
                unused.push((opening, found));
            }
        }
        for (opening, found) in unused {
            self.give_back(&opening, opening.claim.limit - found).await?;
        }
        Ok(started)
    }

    /// Less than asked for: there is no more, and what was reserved for it is given back.
    async fn give_back(&mut self, opening: &Opening, unused: i64) -> Result<(), Error> {
        self.busy.remove(&opening.claim.subscription_id);
        if opening.is_probe {
            self.engine.return_probes(&[&opening.gate.url]).await?;
        }
        if let Some(rate) = opening.rate {
            self.engine.return_to_rate(opening.claim.subscription_id, rate, unused).await?;
        }
        Ok(())
    }

    fn start(&self, push: ClaimedPush, opening: &Opening, claimed_at: Instant) {
        let slot: Slot = self.slots.take(opening.claim.subscription_id, push.payload_bytes());
        let attempt = Attempt {
            engine: self.engine.clone(),
            client: self.client.clone(),
            subscriber: opening.subscriber.clone(),
            failing: self.failing.clone(),
            claimed_at,
            has_failed_before: opening.gate.failures_in_row > 0 || opening.is_probe,
            is_probe: opening.is_probe,
            push,
        };
        self.attempts.spawn(attempt.run(slot));
    }

    /// Sleeps until there may be something to do.
    async fn rest(&self) {
        let signaled = self.engine.dispatch_signal().signaled();
        match self.later.values().min() {
            Some(at) => drop(tokio::time::timeout_at(*at, signaled).await),
            None => signaled.await,
        }
    }

    /// Waits for the requests under way.
    pub async fn finish(&self) {
        self.attempts.close();
        self.attempts.wait().await;
    }
}

/// Repeats until the server stops; then waits for the requests under way, though not for ever:
/// what is not settled by then is sent again after its lease.
pub async fn run(engine: Engine, client: Client, settings: DispatcherSettings, shutdown: CancellationToken) {
    let mut dispatcher = Dispatcher::new(engine, client, settings);
    // A round is not broken off: what it has claimed it must send.
    while !shutdown.is_cancelled() {
        let began = Instant::now();
        let round = dispatcher.run_once().await;
        let rest = async {
            match round {
                Ok(0) => dispatcher.rest().await,
                Ok(_) => tokio::time::sleep_until(began + PACE).await,
                Err(error) => {
                    report("dispatcher", &error);
                    tokio::time::sleep(TROUBLE_PAUSE).await;
                }
            }
        };
        shutdown.run_until_cancelled(rest).await;
    }
    let _ = tokio::time::timeout(DRAIN, dispatcher.finish()).await;
}

/// Returns for how long a push is claimed.
fn lease_seconds_of(spec: &SubscriptionSpec) -> i32 {
    (spec.timeout_ms + 999) / 1000 + LEASE_MARGIN_SECONDS
}

/// Returns the same as a duration.
fn lease_of(spec: &SubscriptionSpec) -> Duration {
    Duration::from_secs(lease_seconds_of(spec).unsigned_abs().into())
}
