//! A model test: the hub runs beside a model of the queues. In whatever order workers enter, scan,
//! disconnect and are served, and events are published, no event may stay in a queue while a worker
//! that could claim it sleeps. There is no poll here that would make up for a lost notice. Events are also
//! handed over by publications ([`publications`]), and may then overtake none that the hub knows of.

mod publications;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use proptest::prelude::*;

use super::*;
use crate::domain::ids::NamespaceId;
use crate::store::tables::events::Recipient;
use publications::{Publication, PublicationStep};

const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

/// The number of entries beyond the wanted ones that a claim reads.
const SLACK: usize = 2;

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    /// An event is committed; its notice follows in a later step.
    Publish {
        queues: u8,
        priority: u8,
    },
    /// The oldest notice under way arrives. With `as_counts` all notices arrive, as a count per queue,
    /// like those of another server.
    Notify {
        as_counts: bool,
    },
    Enter {
        queues: u8,
        wanted: u8,
        /// Whether events may be handed over to it.
        accepts: bool,
    },
    Disconnect {
        which: u8,
    },
    /// One of the workers that want to scan begins, together with all others of the same queues.
    BeginScan {
        which: u8,
    },
    /// The statement of the scan under way is run.
    RunStatement,
    /// The scan under way ends or fails.
    EndScan {
        fails: bool,
    },
    Publication(PublicationStep),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u8..16, 0u8..3).prop_map(|(queues, priority)| Step::Publish { queues, priority }),
        4 => any::<bool>().prop_map(|as_counts| Step::Notify { as_counts }),
        5 => (1u8..16, 1u8..4, prop::bool::weighted(0.8))
            .prop_map(|(queues, wanted, accepts)| Step::Enter { queues, wanted, accepts }),
        1 => any::<u8>().prop_map(|which| Step::Disconnect { which }),
        4 => any::<u8>().prop_map(|which| Step::BeginScan { which }),
        4 => Just(Step::RunStatement),
        4 => prop::bool::weighted(0.1).prop_map(|fails| Step::EndScan { fails }),
        6 => publications::steps().prop_map(Step::Publication),
    ];
    prop::collection::vec(step, 1..120)
}

fn names(bits: u8) -> Queues {
    let is_meant = |(index, _): &(usize, &&str)| bits & (1 << index) != 0;
    QUEUES.iter().enumerate().filter(is_meant).map(|(_, name)| QueueKey::of_tag(NamespaceId::DEFAULT, name)).collect()
}

struct Worker {
    /// Its sleep, unless it scans or wants to scan.
    sleep: Option<LocalBoxFuture<'static, ()>>,
    waiter: Arc<Waiter>,
    queues: Queues,
    wanted: usize,
    wants_to_scan: bool,
    is_scanning: bool,
}

impl Worker {
    /// Lets the worker sleep until it is woken with a reason to scan or with events. Returns whether it has got
    /// events.
    fn sleep_on(&mut self) -> bool {
        while !self.is_scanning && !self.wants_to_scan {
            let waiter = self.waiter.clone();
            let sleep = self.sleep.get_or_insert_with(|| async move { waiter.woken().await }.boxed_local());
            if sleep.now_or_never().is_none() {
                return false;
            }
            self.sleep = None;
            if self.waiter.take_events().is_some() {
                return true;
            }
            self.wants_to_scan = self.waiter.should_scan();
        }
        false
    }
}

struct UnderWay<'a> {
    scan: ClaimScan<'a>,
    queues: Queues,
    members: Vec<u64>,
    /// The number of events that the statement gave to each member, and the result of the scan.
    outcome: Option<(Vec<usize>, ScanResult)>,
}

struct World<'a> {
    hub: &'a Arc<Hub>,
    workers: BTreeMap<u64, Worker>,
    /// The events that can be claimed, by priority and number.
    ready: BTreeMap<(u8, u64), Queues>,
    next_event: u64,
    /// The events whose notices are under way.
    notices: Vec<((u8, u64), Queues)>,
    under_way: Option<UnderWay<'a>>,
    publications: Vec<Publication<'a>>,
    /// The events that were delivered to waiters which have not taken them yet.
    delivered: BTreeMap<u64, Vec<Queues>>,
}

impl World<'_> {
    fn publish(&mut self, queues: Queues, priority: u8) {
        let position = (priority, self.next_event);
        self.ready.insert(position, queues.clone());
        self.next_event += 1;
        self.notices.push((position, queues));
    }

    fn notify(&mut self, as_counts: bool) {
        if !as_counts {
            if !self.notices.is_empty() {
                self.hub.notify(&self.notices.remove(0).1);
            }
            return;
        }
        let mut counts: BTreeMap<QueueKey, usize> = BTreeMap::new();
        for queue in self.notices.drain(..).flat_map(|(_, queues)| queues.to_vec()) {
            *counts.entry(queue).or_default() += 1;
        }
        for (queue, events) in counts {
            self.hub.notify_many(&queue, events);
        }
    }

    fn enter(&mut self, queues: Queues, wanted: usize, accepts: bool) {
        let waiter = Arc::new(self.hub.enter(queues.clone(), wanted).expect("the hub has capacity"));
        if accepts {
            waiter.accept_hand_over(Recipient { worker_id: "w:1".into(), lease_seconds: 60.0 });
        }
        let (number, wants_to_scan) = (waiter.number(), waiter.should_scan());
        let mut worker = Worker { sleep: None, waiter, queues, wanted, wants_to_scan, is_scanning: false };
        worker.sleep_on();
        self.workers.insert(number, worker);
    }

    /// A worker disconnects. Events that were delivered to it are released, which counts as publishing them.
    fn disconnect(&mut self, which: u8) {
        let numbers: Vec<u64> = self.workers.keys().copied().collect();
        if let Some(number) = numbers.get(which as usize % numbers.len().max(1)) {
            self.workers.remove(number);
            for queues in self.delivered.remove(number).unwrap_or_default() {
                self.publish(queues, 2);
            }
        }
    }

    /// Each woken worker wants to scan, unless its queues are known to be empty, or leaves with its events.
    fn wake_up(&mut self) {
        let served: Vec<u64> =
            self.workers.iter_mut().filter_map(|(number, worker)| worker.sleep_on().then_some(*number)).collect();
        for number in served {
            self.workers.remove(&number);
            assert!(self.delivered.remove(&number).is_some(), "events were delivered to it");
        }
    }

    fn begin_scan(&mut self, which: u8) {
        self.wake_up();
        let eager: Vec<u64> =
            self.workers.iter().filter(|(_, worker)| worker.wants_to_scan).map(|(number, _)| *number).collect();
        if self.under_way.is_some() || eager.is_empty() {
            return;
        }
        let queues = self.workers[&eager[which as usize % eager.len()]].queues.clone();
        let members: Vec<u64> = eager.into_iter().filter(|number| self.workers[number].queues == queues).collect();
        for number in &members {
            let worker = self.workers.get_mut(number).expect("a member");
            worker.wants_to_scan = false;
            worker.is_scanning = true;
        }
        let scan = self.hub.begin_scan(queues.clone(), members.clone());
        self.under_way = Some(UnderWay { scan, queues, members, outcome: None });
    }

    /// Takes the first entries, like the claim statement. Events for a worker that has disconnected in the
    /// meantime are released, which counts as publishing them.
    fn run_statement(&mut self) {
        let Some(UnderWay { queues, members, outcome: outcome @ None, .. }) = self.under_way.as_mut() else { return };
        let wanted: Vec<usize> =
            members.iter().map(|number| self.workers.get(number).map_or(1, |w| w.wanted)).collect();
        let slots: usize = wanted.iter().sum();
        let mut candidates: BTreeSet<(u8, u64)> = BTreeSet::new();
        let mut seen: Vec<(QueueKey, Vec<(u8, u64)>)> = Vec::new();
        for queue in queues.iter() {
            let entries = self.ready.iter().filter(|(_, queues)| queues.contains(queue)).map(|(position, _)| *position);
            let entries: Vec<(u8, u64)> = entries.take(slots + SLACK).collect();
            candidates.extend(&entries);
            seen.push((queue.clone(), entries));
        }
        let claimed: BTreeSet<(u8, u64)> = candidates.into_iter().take(slots).collect();
        let left = seen.into_iter().map(|(queue, entries)| {
            let left = entries.iter().filter(|position| !claimed.contains(position)).count();
            (queue, left)
        });
        let left = left.filter(|(_, left)| *left > 0).collect();
        let mut events: Vec<Queues> = claimed.iter().filter_map(|position| self.ready.remove(position)).collect();
        let mut given = Vec::new();
        let mut released = Vec::new();
        for (number, wanted) in members.iter().zip(wanted) {
            let share: Vec<Queues> = events.drain(..wanted.min(events.len())).collect();
            given.push(share.len());
            if !self.workers.contains_key(number) {
                released.extend(share);
            }
        }
        *outcome = Some((given, ScanResult { found: !claimed.is_empty(), left }));
        for queues in released {
            self.publish(queues, 2);
        }
    }

    fn end_scan(&mut self, fails: bool) {
        let Some(UnderWay { scan, members, outcome, .. }) = self.under_way.take() else { return };
        let failed = fails || outcome.is_none();
        let (given, result) = outcome.unwrap_or_default();
        if failed {
            drop(scan);
        } else {
            scan.finish(&result);
        }
        for (index, number) in members.iter().enumerate() {
            let Some(worker) = self.workers.get_mut(number) else { continue };
            worker.is_scanning = false;
            // A worker whose scan failed tries again.
            worker.wants_to_scan = failed;
            worker.sleep_on();
            if given.get(index).is_some_and(|events| *events > 0) {
                self.workers.remove(number);
            }
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Publication(ref step) => self.run_publication(step),
            Step::Publish { queues, priority } => self.publish(names(queues), priority),
            Step::Notify { as_counts } => self.notify(as_counts),
            Step::Enter { queues, wanted, accepts } => self.enter(names(queues), wanted.into(), accepts),
            Step::Disconnect { which } => self.disconnect(which),
            Step::BeginScan { which } => self.begin_scan(which),
            Step::RunStatement => self.run_statement(),
            // A scan cannot fail once its statement has given events to workers.
            Step::EndScan { fails } => {
                let is_run = self.under_way.as_ref().is_some_and(|scan| scan.outcome.is_some());
                self.end_scan(fails && !is_run);
            }
        }
    }

    /// Runs everything that is under way, until no worker has a reason to act.
    fn settle(&mut self) {
        loop {
            self.end_publications();
            while !self.notices.is_empty() {
                self.notify(false);
            }
            if self.under_way.is_none() {
                self.begin_scan(0);
            }
            if self.under_way.is_none() && self.notices.is_empty() {
                return;
            }
            self.run_statement();
            self.end_scan(false);
        }
    }

    fn left_behind(&self) -> Option<&Queues> {
        let is_awaited = |queues: &&Queues| {
            self.workers.values().any(|worker| worker.queues.iter().any(|queue| queues.contains(queue)))
        };
        self.ready.values().find(is_awaited)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_event_finds_a_waiter_that_may_have_it(steps in steps()) {
        let hub = Arc::new(Hub::new(1_000));
        let mut world = World {
            hub: &hub,
            workers: BTreeMap::new(),
            ready: BTreeMap::new(),
            next_event: 0,
            notices: Vec::new(),
            under_way: None,
            publications: Vec::new(),
            delivered: BTreeMap::new(),
        };
        for step in &steps {
            world.run(step);
        }
        world.settle();
        prop_assert!(world.delivered.is_empty(), "a worker sleeps although it has events");
        prop_assert!(world.left_behind().is_none(), "{:?} waits although a worker waits for it", world.left_behind());
        world.workers.clear();
        prop_assert!(hub.is_empty() && hub.awaited_queues().is_empty());
    }
}
