//! The waiting room beside a model of the queues: whatever the order in which workers come, look,
//! hang up and are served, and in which events are published, no event is left while a worker that
//! may have it sleeps. There is no poll here to make up for a lost notice.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;

const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

/// How much further than needed a claim looks.
const SLACK: usize = 2;

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    /// An event is committed; its notice follows in a later step.
    Publish {
        queues: u8,
        priority: u8,
    },
    /// The oldest notice that is under way arrives, together with those behind it, as from another
    /// server: counted per queue.
    Notify {
        as_counts: bool,
    },
    Enter {
        queues: u8,
        wanted: u8,
    },
    HangUp {
        which: u8,
    },
    /// Those who should look and ask for the same queues as one of them begin to look together.
    BeginLook {
        which: u8,
    },
    /// The statement of the look under way is run.
    RunStatement,
    /// The look under way ends, or fails.
    EndLook {
        fails: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u8..16, 0u8..3).prop_map(|(queues, priority)| Step::Publish { queues, priority }),
        4 => any::<bool>().prop_map(|as_counts| Step::Notify { as_counts }),
        4 => (1u8..16, 1u8..4).prop_map(|(queues, wanted)| Step::Enter { queues, wanted }),
        1 => any::<u8>().prop_map(|which| Step::HangUp { which }),
        4 => any::<u8>().prop_map(|which| Step::BeginLook { which }),
        4 => Just(Step::RunStatement),
        4 => prop::bool::weighted(0.1).prop_map(|fails| Step::EndLook { fails }),
    ];
    prop::collection::vec(step, 1..120)
}

fn names(bits: u8) -> Queues {
    let is_meant = |(index, _): &(usize, &&str)| bits & (1 << index) != 0;
    QUEUES.iter().enumerate().filter(is_meant).map(|(_, name)| (*name).to_owned()).collect()
}

struct Worker {
    waiter: Waiter,
    queues: Queues,
    wanted: usize,
    wants_to_look: bool,
    is_scanning: bool,
}

struct UnderWay<'a> {
    scan: ClaimScan<'a>,
    queues: Queues,
    members: Vec<u64>,
    /// What the statement gave: how many events to each member, and what it left.
    outcome: Option<(Vec<usize>, ScanResult)>,
}

struct World<'a> {
    hub: &'a Arc<Hub>,
    workers: BTreeMap<u64, Worker>,
    /// What can be claimed, by priority and number.
    ready: BTreeMap<(u8, u64), Queues>,
    next_event: u64,
    notices: Vec<Queues>,
    under_way: Option<UnderWay<'a>>,
}

impl World<'_> {
    fn publish(&mut self, queues: Queues, priority: u8) {
        self.ready.insert((priority, self.next_event), queues.clone());
        self.next_event += 1;
        self.notices.push(queues);
    }

    fn notify(&mut self, as_counts: bool) {
        if !as_counts {
            if !self.notices.is_empty() {
                self.hub.notify(&self.notices.remove(0));
            }
            return;
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for queue in self.notices.drain(..).flat_map(|queues| queues.to_vec()) {
            *counts.entry(queue).or_default() += 1;
        }
        for (queue, events) in counts {
            self.hub.notify_many(&queue, events);
        }
    }

    fn enter(&mut self, queues: Queues, wanted: usize) {
        let waiter = self.hub.enter(queues.clone(), wanted).expect("hub_state");
        let wants_to_look = waiter.should_look();
        self.workers.insert(waiter.number(), Worker { waiter, queues, wanted, wants_to_look, is_scanning: false });
    }

    fn hang_up(&mut self, which: u8) {
        let numbers: Vec<u64> = self.workers.keys().copied().collect();
        if let Some(number) = numbers.get(which as usize % numbers.len().max(1)) {
            self.workers.remove(number);
        }
    }

    /// Everybody who was woken comes to look, if that may be of use.
    fn wake_up(&mut self) {
        for worker in self.workers.values_mut().filter(|worker| !worker.is_scanning) {
            if worker.waiter.woken().now_or_never().is_some() {
                worker.wants_to_look = worker.waiter.should_look();
            }
        }
    }

    fn begin_scan(&mut self, which: u8) {
        self.wake_up();
        let eager: Vec<u64> =
            self.workers.iter().filter(|(_, worker)| worker.wants_to_look).map(|(number, _)| *number).collect();
        if self.under_way.is_some() || eager.is_empty() {
            return;
        }
        let queues = self.workers[&eager[which as usize % eager.len()]].queues.clone();
        let members: Vec<u64> = eager.into_iter().filter(|number| self.workers[number].queues == queues).collect();
        for number in &members {
            let worker = self.workers.get_mut(number).expect("a member");
            worker.wants_to_look = false;
            worker.is_scanning = true;
        }
        let scan = self.hub.begin_scan(queues.clone(), members.clone());
        self.under_way = Some(UnderWay { scan, queues, members, outcome: None });
    }

    /// Takes the first entries, as the claim statement does. What is taken for somebody who has
    /// hung up meanwhile is released again, which is a publication to the queues.
    fn run_statement(&mut self) {
        let Some(UnderWay { queues, members, outcome: outcome @ None, .. }) = self.under_way.as_mut() else { return };
        let wanted: Vec<usize> =
            members.iter().map(|number| self.workers.get(number).map_or(1, |w| w.wanted)).collect();
        let slots: usize = wanted.iter().sum();
        let mut candidates: BTreeSet<(u8, u64)> = BTreeSet::new();
        let mut seen: Vec<(String, Vec<(u8, u64)>)> = Vec::new();
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
        let (given, findings) = outcome.unwrap_or_default();
        if failed {
            drop(scan);
        } else {
            scan.finish(&findings);
        }
        for (index, number) in members.iter().enumerate() {
            let Some(worker) = self.workers.get_mut(number) else { continue };
            worker.is_scanning = false;
            // Who was told of a failure tries again.
            worker.wants_to_look = failed;
            if given.get(index).is_some_and(|events| *events > 0) {
                self.workers.remove(number);
            }
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Publish { queues, priority } => self.publish(names(queues), priority),
            Step::Notify { as_counts } => self.notify(as_counts),
            Step::Enter { queues, wanted } => self.enter(names(queues), wanted.into()),
            Step::HangUp { which } => self.hang_up(which),
            Step::BeginLook { which } => self.begin_scan(which),
            Step::RunStatement => self.run_statement(),
            // What a statement gave before the look failed was given.
            Step::EndLook { fails } => {
                let is_run = self.under_way.as_ref().is_some_and(|scan| scan.outcome.is_some());
                self.end_scan(fails && !is_run);
            }
        }
    }

    /// Lets everything happen that is under way, until nobody has a reason to do anything.
    fn settle(&mut self) {
        loop {
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
        };
        for step in &steps {
            world.run(step);
        }
        world.settle();
        prop_assert!(world.left_behind().is_none(), "{:?} waits, and so does a worker for it", world.left_behind());
        world.workers.clear();
        prop_assert!(hub.is_empty() && hub.awaited_queues().is_empty());
    }
}
