//! The dispatcher: the built-in worker that pushes events to subscribers.
//!
//! It sleeps until the dispatch signal names a subscription. Then it checks every subscription that
//! may have pushes: whether it is active, its endpoint is not paused and its rate limit is not used
//! up. It claims as many pushes as there are free [`slots::Slots`], and starts an [`attempt`] for
//! each. While a round waits for the database, more slots are freed and more signals arrive, and the
//! next round serves them together. The busier the dispatcher is, the fewer statements a push costs.
//!
//! A subscription stays in the set of busy ones until a claim finds fewer pushes than requested. A
//! subscription that must wait is moved to the map of later ones, with the time of the next check.
//! Until then nothing of it is claimed, and no attempt is counted. The same holds for a subscription whose
//! secrets this server cannot decrypt ([`held`]).

pub mod attempt;
pub(crate) mod failing;
mod held;
pub mod slots;
mod span;
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
use crate::domain::ids::{NamespaceId, SubscriptionId, SubscriptionKey};
use crate::domain::subscription::{Credentials, SubscriptionSpec};
use crate::engine::Engine;
use crate::engine::publish::subscription_cache::Subscriber;
use crate::engine::push::{ClaimedPush, PushClaim};
use crate::error::Error;
use crate::store::tables::endpoints::{EndpointGate, EndpointKey};
use crate::webhook::Client;

use attempt::Attempt;
use failing::Failing;
use held::Held;
use slots::{Slot, Slots};

/// The time by which a lease exceeds the timeout of its request, in order to record the outcome.
const LEASE_MARGIN_SECONDS: i32 = 15;

/// The maximum number of subscriptions that are checked in one round.
const SUBSCRIPTIONS_PER_ROUND: usize = 500;

/// The maximum number of deliveries that are claimed in one round.
const CLAIMS_PER_ROUND: usize = 200;

/// The minimum time between a round that started attempts and the next one. Slots that are freed and
/// signals that arrive meanwhile are served together. A signal after an idle period is served at once.
const MIN_ROUND_INTERVAL: Duration = Duration::from_millis(5);

/// The wait before the next check of a subscription whose endpoint another server is probing.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// The wait before the next check of a subscription whose secrets cannot be decrypted.
const HELD_WAIT: Duration = Duration::from_secs(10);

/// The pause after a failed round.
const ERROR_PAUSE: Duration = Duration::from_millis(500);

/// The time that requests in flight have to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub struct DispatcherSettings {
    /// The maximum number of requests in flight.
    pub max_pushes: usize,
}

/// The dispatcher of one server.
pub struct Dispatcher {
    engine: Engine,
    client: Client,
    slots: Arc<Slots>,
    failing: Arc<Failing>,
    attempts: TaskTracker,
    /// The subscriptions that may have ready pushes.
    busy: BTreeSet<SubscriptionKey>,
    /// The subscriptions that must wait, with the time of their next check.
    later: BTreeMap<SubscriptionKey, Instant>,
    held: Held,
    /// The subscription that got the last slot. The next round begins with the one after it.
    last_served: SubscriptionKey,
}

/// The claim for one subscription in this round, and what it is based on.
struct PlannedClaim {
    claim: PushClaim,
    subscriber: Subscriber,
    credentials: Arc<Credentials>,
    gate: EndpointGate,
    is_probe: bool,
    rate: Option<f64>,
}

impl Dispatcher {
    /// Creates a dispatcher. Its first round checks all subscriptions.
    pub fn new(engine: Engine, client: Client, settings: DispatcherSettings) -> Self {
        let slots = Slots::new(settings.max_pushes, engine.clone());
        engine.dispatch_signal().register_dispatcher();
        engine.dispatch_signal().signal(None);
        Dispatcher {
            engine,
            client,
            slots,
            failing: Arc::default(),
            attempts: TaskTracker::new(),
            busy: BTreeSet::new(),
            later: BTreeMap::new(),
            held: Held::default(),
            last_served: NamespaceId(0).subscription(SubscriptionId(0)),
        }
    }

    /// Runs one round. Returns the number of attempts that it started.
    pub async fn run_once(&mut self) -> Result<usize, Error> {
        self.take_signals().await?;
        let candidates = self.candidates();
        if candidates.is_empty() || self.slots.all_taken() {
            return Ok(0);
        }
        let gates = self.engine.read_endpoint_gates(&candidates).await?;
        // After a restore of the database a subscription may no longer exist.
        let present: BTreeSet<SubscriptionKey> = gates.iter().map(EndpointGate::subscription).collect();
        for key in candidates.iter().filter(|key| !present.contains(key)) {
            self.busy.remove(key);
            self.held.release(*key);
        }
        let outdated = gates.iter().filter(|gate| self.is_outdated(gate)).map(|gate| gate.subscription().namespace);
        let outdated: BTreeSet<NamespaceId> = outdated.collect();
        self.engine.reload_subscribers(&outdated.into_iter().collect::<Vec<_>>()).await?;
        let mut plans = Vec::new();
        for gate in gates {
            plans.extend(self.plan(gate).await?);
        }
        self.engine.metrics().subscriptions_held.set(self.held.count());
        let all_served = self.share_slots(&mut plans);
        self.limit_rates(&mut plans).await?;
        let (plans, refused): (Vec<_>, Vec<_>) = plans.into_iter().partition(|plan| plan.claim.limit > 0);
        let unused: Vec<EndpointKey<'_>> =
            refused.iter().filter(|plan| plan.is_probe).map(|plan| plan.gate.endpoint()).collect();
        if !unused.is_empty() {
            self.engine.return_probes(&unused).await?;
        }
        let started = self.claim_and_start(plans).await?;
        if started == 0 && !all_served {
            // The subscriptions that got the slots had no pushes. Nothing else would start a round for the
            // others.
            self.engine.dispatch_signal().nudge();
        }
        Ok(started)
    }

    /// Returns the subscriptions to check in this round, beginning after the last one served.
    fn candidates(&self) -> Vec<SubscriptionKey> {
        let first = self.busy.range((Bound::Excluded(self.last_served), Bound::Unbounded));
        let all = first.chain(self.busy.range(..=self.last_served)).copied();
        all.filter(|key| self.has_free_slot(*key)).take(SUBSCRIPTIONS_PER_ROUND).collect()
    }

    fn has_free_slot(&self, key: SubscriptionKey) -> bool {
        let known = self.engine.subscription_cache().get(key);
        known.is_none_or(|subscriber| self.slots.free(key, subscriber.subscription.spec.max_concurrency) > 0)
    }

    /// Returns whether the cached version of an active subscription is missing or outdated.
    fn is_outdated(&self, gate: &EndpointGate) -> bool {
        let known = self.engine.subscription_cache().get(gate.subscription()).map(|s| s.subscription.version);
        gate.is_active && known != Some(gate.version)
    }

    /// Adds the signalled subscriptions, and those whose wait is over, to the busy ones.
    async fn take_signals(&mut self) -> Result<(), Error> {
        let signaled = self.engine.dispatch_signal().take();
        self.busy.extend(signaled.subscriptions);
        if signaled.for_all {
            // If that fails, the signal must not be lost.
            self.engine.refresh_subscribers().await.inspect_err(|_| self.engine.dispatch_signal().signal(None))?;
            self.busy.extend(self.engine.subscription_cache().keys());
        }
        let now = Instant::now();
        let due: Vec<SubscriptionKey> = self.later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
        for key in due {
            self.later.remove(&key);
            self.busy.insert(key);
        }
        Ok(())
    }

    /// Returns the claim for a subscription, or `None` if it must wait. A subscription that must wait is
    /// checked later or, if it is inactive, at its next signal.
    async fn plan(&mut self, gate: EndpointGate) -> Result<Option<PlannedClaim>, Error> {
        let key = gate.subscription();
        let Some(subscriber) = self.engine.subscription_cache().get(key).filter(|_| gate.is_active) else {
            self.busy.remove(&key);
            self.held.release(key);
            return Ok(None);
        };
        if let Some(seconds) = gate.paused_for {
            self.leave_for_later(key, Duration::from_secs_f64(seconds.clamp(0.0, 60.0)));
            return Ok(None);
        }
        let Some(credentials) = self.credentials_of(key, &subscriber) else {
            self.leave_for_later(key, HELD_WAIT);
            return Ok(None);
        };
        let spec = &subscriber.subscription.spec;
        let lease_seconds = lease_seconds_for(spec);
        let is_probe = gate.is_open;
        if is_probe && !self.engine.take_probe(gate.endpoint(), f64::from(lease_seconds)).await? {
            self.leave_for_later(key, PROBE_WAIT);
            return Ok(None);
        }
        let limit = if is_probe { 1 } else { self.slots.free(key, spec.max_concurrency) as i64 };
        let rate = spec.rate_per_second;
        let version = subscriber.subscription.version;
        let claim = PushClaim { subscription: key, version, limit, lease_seconds };
        Ok(Some(PlannedClaim { claim, subscriber, credentials, gate, is_probe, rate }))
    }

    /// Decrypts the secrets and headers of a subscription. Returns `None` if that is not possible. Then the
    /// subscription is held: nothing of it is claimed, and its pushes wait for a server that has the key.
    fn credentials_of(&mut self, key: SubscriptionKey, subscriber: &Subscriber) -> Option<Arc<Credentials>> {
        let credentials = self.engine.credentials_of(subscriber);
        match &credentials {
            Ok(_) => self.held.release(key),
            Err(unreadable) => self.held.hold(key, unreadable),
        }
        credentials.ok().map(Arc::new)
    }

    fn leave_for_later(&mut self, key: SubscriptionKey, wait: Duration) {
        self.busy.remove(&key);
        self.later.insert(key, Instant::now() + wait);
    }

    /// Divides the free slots among the subscriptions. Each slot goes to the subscription with the fewest
    /// slots and, among equals, to the next one after the last served. Returns whether all subscriptions
    /// that wanted a slot got one.
    fn share_slots(&mut self, plans: &mut [PlannedClaim]) -> bool {
        plans.sort_by_key(|plan| (plan.claim.subscription <= self.last_served, plan.claim.subscription));
        let wanted: Vec<i64> = plans.iter_mut().map(|plan| std::mem::take(&mut plan.claim.limit)).collect();
        let taken = |index: usize| self.slots.taken(plans[index].claim.subscription);
        let mut queue: BinaryHeap<Reverse<(usize, usize)>> =
            (0..wanted.len()).filter(|index| wanted[*index] > 0).map(|index| Reverse((taken(index), index))).collect();
        for _ in 0..self.slots.total_free().min(CLAIMS_PER_ROUND) {
            let Some(Reverse((taken, index))) = queue.pop() else { break };
            let claim = &mut plans[index].claim;
            claim.limit += 1;
            self.last_served = claim.subscription;
            if claim.limit < wanted[index] {
                queue.push(Reverse((taken + 1, index)));
            }
        }
        plans.iter().zip(wanted).all(|(plan, wanted)| plan.claim.limit > 0 || wanted == 0)
    }

    /// Reduces the claims to what the rate limits allow.
    async fn limit_rates(&mut self, plans: &mut [PlannedClaim]) -> Result<(), Error> {
        let wanted: Vec<(SubscriptionKey, f64, i64)> =
            plans.iter().filter_map(|plan| Some((plan.claim.subscription, plan.rate?, plan.claim.limit))).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for grant in self.engine.take_from_rates(&wanted).await? {
            let Some(plan) = plans.iter_mut().find(|plan| plan.claim.subscription == grant.subscription()) else {
                continue;
            };
            if grant.granted < plan.claim.limit {
                self.leave_for_later(grant.subscription(), Duration::from_secs_f64(grant.next_in.clamp(0.001, 60.0)));
            }
            plan.claim.limit = grant.granted;
        }
        Ok(())
    }

    async fn claim_and_start(&mut self, plans: Vec<PlannedClaim>) -> Result<usize, Error> {
        if plans.is_empty() {
            return Ok(0);
        }
        let claims: Vec<PushClaim> = plans.iter().map(|plan| plan.claim).collect();
        let claimed_at = Instant::now();
        let claimed = self.engine.claim_pushes(&claims).await?;
        let started = claimed.len();
        let mut by_subscription: HashMap<SubscriptionKey, Vec<ClaimedPush>> = HashMap::new();
        for push in claimed {
            by_subscription.entry(push.subscription()).or_default().push(push);
        }
        // All claimed pushes are started first: an error below must not leave any unsent.
        let mut unused = Vec::new();
        for plan in plans {
            let pushes = by_subscription.remove(&plan.claim.subscription).unwrap_or_default();
            let found = pushes.len() as i64;
            for push in pushes {
                self.start(push, &plan, claimed_at);
            }
            if found < plan.claim.limit {
                unused.push((plan, found));
            }
        }
        for (plan, found) in unused {
            self.return_unused(&plan, plan.claim.limit - found).await?;
        }
        Ok(started)
    }

    /// Handles a claim that found fewer pushes than requested: the subscription has no more, and the
    /// probe and the rate tokens reserved for it are returned.
    async fn return_unused(&mut self, plan: &PlannedClaim, unused: i64) -> Result<(), Error> {
        self.busy.remove(&plan.claim.subscription);
        if plan.is_probe {
            self.engine.return_probes(&[plan.gate.endpoint()]).await?;
        }
        if let Some(rate) = plan.rate {
            self.engine.return_to_rate(plan.claim.subscription, rate, unused).await?;
        }
        Ok(())
    }

    fn start(&self, push: ClaimedPush, plan: &PlannedClaim, claimed_at: Instant) {
        let slot: Slot = self.slots.take(plan.claim.subscription, push.payload_bytes());
        let attempt = Attempt {
            engine: self.engine.clone(),
            client: self.client.clone(),
            subscriber: plan.subscriber.clone(),
            credentials: plan.credentials.clone(),
            failing: self.failing.clone(),
            claimed_at,
            has_failed_before: plan.gate.failures_in_row > 0 || plan.is_probe,
            is_probe: plan.is_probe,
            push,
        };
        self.attempts.spawn(attempt.run(slot));
    }

    /// Sleeps until a signal arrives or a wait is over.
    async fn sleep(&self) {
        let signaled = self.engine.dispatch_signal().signaled();
        match self.later.values().min() {
            Some(at) => drop(tokio::time::timeout_at(*at, signaled).await),
            None => signaled.await,
        }
    }

    /// Waits for the requests in flight.
    pub async fn finish(&self) {
        self.attempts.close();
        self.attempts.wait().await;
    }
}

/// Runs rounds until the server stops. Then waits up to `DRAIN_TIMEOUT` for the requests in flight. A
/// push that is not settled by then is sent again after its lease.
pub async fn run(engine: Engine, client: Client, settings: DispatcherSettings, shutdown: CancellationToken) {
    let mut dispatcher = Dispatcher::new(engine, client, settings);
    // A round is never interrupted, because it must send what it has claimed.
    while !shutdown.is_cancelled() {
        let began = Instant::now();
        let round = dispatcher.run_once().await;
        let pause = async {
            match round {
                Ok(0) => dispatcher.sleep().await,
                Ok(_) => tokio::time::sleep_until(began + MIN_ROUND_INTERVAL).await,
                Err(error) => {
                    report("dispatcher", &error);
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        };
        shutdown.run_until_cancelled(pause).await;
    }
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, dispatcher.finish()).await;
}

/// Returns the length of the lease of a push.
fn lease_seconds_for(spec: &SubscriptionSpec) -> i32 {
    (spec.timeout_ms + 999) / 1000 + LEASE_MARGIN_SECONDS
}

/// Returns the length of the lease of a push as a duration.
fn lease_duration(spec: &SubscriptionSpec) -> Duration {
    Duration::from_secs(lease_seconds_for(spec).unsigned_abs().into())
}
