//! The waiting room: workers that asked for work when there was none.
//!
//! Three words are used throughout:
//! - A [`Waiter`] is one worker in a long poll. It takes its place before it looks for work, so
//!   that nothing which arrives while it looks is missed.
//! - A *notice* says that an event has entered some queues. It goes to one waiter: the one that
//!   has waited longest for any of these queues, and is not looking already. N events are N
//!   notices, so they reach N waiters.
//! - A [`ClaimScan`] is one claim statement on behalf of several waiters. It takes up the notices that
//!   they got before it began.
//!
//! No notice may get lost while its event is still there, or the event would wait for the slow
//! poll although somebody waits for it:
//! - A waiter that leaves hands the notices that it has not looked into to others.
//! - A look that fails gives back the notices that it took up.
//! - A look that found something and saw more in a queue (it took another event than the one that
//!   it was told of, or notices of earlier events were lost) hands on the notices about that queue,
//!   and wakes as many waiters of that queue as there are entries that nobody is about to look for.
//!
//! Nobody looks in vain on purpose: a look that leaves nothing in a queue marks the queue as empty
//! until the next notice about it, and whoever comes meanwhile does not look. That knowledge is kept
//! only while somebody waits for the queue, since only then do the listener and the poller tell of
//! what other servers put into it. So 10,000 idle workers cost the database what ten cost, and
//! workers behind a backlog look at once and share statements.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::Error;

/// Names of queues that belong together: those of an event, or those that a worker asks for.
pub type Queues = Arc<[String]>;

/// The waiting room of one server.
pub struct Hub {
    hub_state: Mutex<HubState>,
    capacity: usize,
    asleep: AtomicUsize,
}

#[derive(Default)]
struct HubState {
    closed: bool,
    next_number: u64,
    /// Counts notices; tells whether a look began before or after one.
    notices: u64,
    waiters: BTreeMap<u64, WaiterState>,
    /// The queues that somebody waits for.
    queues: HashMap<String, QueueState>,
}

struct WaiterState {
    queues: Queues,
    wakeup: Arc<Notify>,
    /// How many events it takes, and so how many notices it can take up.
    wanted: usize,
    /// The notices that it has not looked into yet.
    notices: Vec<Queues>,
    /// The notices that its present look has taken up.
    taken_up: Vec<Queues>,
    /// Whether it is going to look: it has just come, or has a notice.
    is_about_to_scan: bool,
    /// Whether a look on its behalf is under way.
    is_scanning: bool,
}

struct QueueState {
    /// How many wait for it.
    waiters: usize,
    /// Those of them who can take another notice.
    listed: BTreeSet<u64>,
    /// Those who can, but are looking: they get a notice only if there is nobody else.
    scanning: BTreeSet<u64>,
    /// How many of them are about to look.
    about_to_scan: usize,
    /// The number of the last notice about it.
    last_notice: u64,
    /// Whether a look that began after the last notice left nothing in it.
    is_empty: bool,
}

impl QueueState {
    fn unlist(&mut self, number: u64) {
        self.listed.remove(&number);
        self.scanning.remove(&number);
    }
}

/// What a look came to.
#[derive(Debug, Default)]
pub struct ScanResult {
    /// Whether anything was claimed.
    pub found: bool,
    /// The queues in which entries were seen and left, and how many.
    pub left: Vec<(String, usize)>,
}

impl ScanResult {
    fn left_something_in(&self, queue: &str) -> bool {
        self.left.iter().any(|(left, _)| left == queue)
    }
}

impl Hub {
    /// Makes a room for `capacity` waiters.
    pub fn new(capacity: usize) -> Self {
        Hub { hub_state: Mutex::default(), capacity, asleep: AtomicUsize::new(0) }
    }

    /// Takes a place for a worker that wants up to `wanted` events.
    pub fn enter(self: &Arc<Self>, queues: Queues, wanted: usize) -> Result<Waiter, Error> {
        let mut hub_state = self.lock();
        if hub_state.waiters.len() >= self.capacity {
            return Err(Error::Overloaded);
        }
        let wakeup = Arc::new(Notify::new());
        let number = hub_state.enter(queues, wakeup.clone(), wanted);
        Ok(Waiter { hub: self.clone(), number, wakeup })
    }

    /// Tells one waiter that an event has entered these queues.
    pub fn notify(&self, queues: &Queues) {
        let mut hub_state = self.lock();
        hub_state.note_arrival(queues);
        hub_state.deliver(queues);
    }

    /// Tells up to `events` waiters that this many events have entered a queue.
    pub fn notify_many(&self, queue: &str, events: usize) {
        let mut hub_state = self.lock();
        let queues: Queues = [queue.to_owned()].into();
        hub_state.note_arrival(&queues);
        for _ in 0..events {
            if !hub_state.deliver(&queues) {
                break;
            }
        }
    }

    /// Wakes everybody to look for themselves.
    pub fn wake_all(&self) {
        self.lock().wake_all();
    }

    /// Ends all waits, and refuses to begin new ones.
    pub fn close(&self) {
        let mut hub_state = self.lock();
        hub_state.closed = true;
        hub_state.wake_all();
    }

    /// Returns whether the room is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns how many wait.
    pub fn len(&self) -> usize {
        self.lock().waiters.len()
    }

    /// Returns how many of them have nothing to look for, and wait to be woken.
    pub fn asleep(&self) -> usize {
        self.asleep.load(Ordering::Acquire)
    }

    /// Returns whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the queues that somebody waits for.
    pub fn awaited_queues(&self) -> Vec<String> {
        self.lock().queues.keys().cloned().collect()
    }

    /// Returns whether there is nothing in these queues, as far as this server knows.
    pub fn knows_to_be_empty(&self, queues: &[String]) -> bool {
        self.lock().knows_to_be_empty(queues)
    }

    /// Begins to look at queues on behalf of these waiters.
    pub fn begin_scan(&self, queues: Queues, waiters: Vec<u64>) -> ClaimScan<'_> {
        let mut hub_state = self.lock();
        for number in &waiters {
            hub_state.take_up_notices(*number);
        }
        ClaimScan { hub: self, began: hub_state.notices, queues, waiters, is_done: false }
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        // Nothing in here panics half-way; a poisoned room is still a consistent one.
        self.hub_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HubState {
    fn enter(&mut self, queues: Queues, wakeup: Arc<Notify>, wanted: usize) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        for queue in queues.iter() {
            match self.queues.get_mut(queue) {
                Some(state) => state.waiters += 1,
                None => self.open_queue(queue),
            }
        }
        let state = WaiterState {
            queues: queues.clone(),
            wakeup,
            wanted: wanted.max(1),
            notices: Vec::new(),
            taken_up: Vec::new(),
            is_about_to_scan: false,
            is_scanning: false,
        };
        self.waiters.insert(number, state);
        self.list(number);
        if !self.knows_to_be_empty(&queues) {
            self.set_about_to_scan(number, true);
        }
        number
    }

    /// Nothing is known of a queue that nobody has waited for, so it counts as not empty. A look
    /// that began before says nothing of what has come since, so this counts as a notice.
    fn open_queue(&mut self, queue: &str) {
        self.notices += 1;
        let state = QueueState {
            waiters: 1,
            listed: BTreeSet::new(),
            scanning: BTreeSet::new(),
            about_to_scan: 0,
            last_notice: self.notices,
            is_empty: false,
        };
        self.queues.insert(queue.to_owned(), state);
    }

    fn leave(&mut self, number: u64) {
        let was_counted_on = self.waiters.get(&number).is_some_and(|waiter| waiter.is_about_to_scan);
        self.set_about_to_scan(number, false);
        let Some(left) = self.waiters.remove(&number) else { return };
        for queue in left.queues.iter() {
            if let Some(state) = self.queues.get_mut(queue) {
                state.unlist(number);
                state.waiters -= 1;
                if state.waiters == 0 {
                    self.queues.remove(queue);
                }
            }
        }
        if self.closed {
            return;
        }
        for notice in left.taken_up.iter().chain(&left.notices) {
            self.deliver(notice);
        }
        // Others were not woken because this one was about to look.
        if was_counted_on && left.notices.is_empty() && !self.knows_to_be_empty(&left.queues) {
            self.deliver(&left.queues);
        }
    }

    /// Lists a waiter in its queues, if it can take another notice.
    fn list(&mut self, number: u64) {
        let Some(waiter) = self.waiters.get(&number) else { return };
        let can_take_another = waiter.notices.len() < waiter.wanted;
        for queue in waiter.queues.iter() {
            let Some(state) = self.queues.get_mut(queue) else { continue };
            state.unlist(number);
            if can_take_another && waiter.is_scanning {
                state.scanning.insert(number);
            } else if can_take_another {
                state.listed.insert(number);
            }
        }
    }

    fn set_about_to_scan(&mut self, number: u64, is_about_to_scan: bool) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        if waiter.is_about_to_scan == is_about_to_scan {
            return;
        }
        waiter.is_about_to_scan = is_about_to_scan;
        for queue in waiter.queues.iter() {
            if let Some(state) = self.queues.get_mut(queue) {
                if is_about_to_scan {
                    state.about_to_scan += 1;
                } else {
                    state.about_to_scan -= 1;
                }
            }
        }
    }

    fn knows_to_be_empty(&self, queues: &[String]) -> bool {
        queues.iter().all(|queue| self.queues.get(queue).is_some_and(|state| state.is_empty))
    }

    fn note_arrival(&mut self, queues: &[String]) {
        self.notices += 1;
        for queue in queues {
            if let Some(state) = self.queues.get_mut(queue) {
                state.last_notice = self.notices;
                state.is_empty = false;
            }
        }
    }

    /// Gives a notice to whoever has waited longest for any of its queues; returns whether there
    /// was anybody.
    fn deliver(&mut self, notice: &Queues) -> bool {
        let longest = |pick: fn(&QueueState) -> &BTreeSet<u64>| {
            notice.iter().filter_map(|queue| pick(self.queues.get(queue)?).first()).min().copied()
        };
        let taker = longest(|queue| &queue.listed).or_else(|| longest(|queue| &queue.scanning));
        taker.is_some_and(|number| self.give(number, notice.clone()))
    }

    fn give(&mut self, number: u64, notice: Queues) -> bool {
        let Some(waiter) = self.waiters.get_mut(&number) else { return false };
        waiter.notices.push(notice);
        waiter.wakeup.notify_one();
        if waiter.notices.len() >= waiter.wanted {
            self.list(number);
        }
        self.set_about_to_scan(number, true);
        true
    }

    fn wake_all(&mut self) {
        let everybody: Vec<(u64, Queues)> =
            self.waiters.iter().map(|(number, waiter)| (*number, waiter.queues.clone())).collect();
        for (number, queues) in everybody {
            self.note_arrival(&queues);
            self.give(number, queues);
        }
    }

    fn take_up_notices(&mut self, number: u64) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        // A look whose caller did not wait for its end may still be under way.
        waiter.taken_up.append(&mut waiter.notices);
        waiter.is_scanning = true;
        self.list(number);
        self.set_about_to_scan(number, false);
    }

    /// Gives back what a failed look took up, without a wake-up: the waiter comes back by itself
    /// after a pause, and would not pause if it were woken.
    fn give_back_notices(&mut self, number: u64) {
        let taken_up = self.end_scan(number);
        if taken_up.is_empty() {
            return;
        }
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.notices.extend(taken_up);
        }
        self.list(number);
        self.set_about_to_scan(number, true);
    }

    /// Ends a waiter's look; returns the notices that it took up.
    fn end_scan(&mut self, number: u64) -> Vec<Queues> {
        let Some(waiter) = self.waiters.get_mut(&number) else { return Vec::new() };
        waiter.is_scanning = false;
        let taken_up = std::mem::take(&mut waiter.taken_up);
        self.list(number);
        taken_up
    }

    fn finish(&mut self, scan: &ClaimScan<'_>, findings: &ScanResult) {
        for queue in scan.queues.iter().filter(|queue| !findings.left_something_in(queue)) {
            if let Some(state) = self.queues.get_mut(queue) {
                state.is_empty = state.is_empty || state.last_notice <= scan.began;
            }
        }
        let mut taken_up: Vec<Queues> = Vec::new();
        for number in &scan.waiters {
            taken_up.extend(self.end_scan(*number));
        }
        // Who found nothing although something is there met others who are just taking it.
        if !findings.found || self.closed {
            return;
        }
        for notice in taken_up {
            if notice.iter().any(|queue| findings.left_something_in(queue)) {
                self.deliver(&notice);
            }
        }
        for (queue, entries) in &findings.left {
            let about_to_scan = self.queues.get(queue).map_or(0, |state| state.about_to_scan);
            let notice: Queues = [queue.clone()].into();
            for _ in about_to_scan..*entries {
                if !self.deliver(&notice) {
                    break;
                }
            }
        }
    }
}

/// A look under way. Dropped without [`ClaimScan::finish`], it counts as failed.
pub struct ClaimScan<'a> {
    hub: &'a Hub,
    began: u64,
    queues: Queues,
    waiters: Vec<u64>,
    is_done: bool,
}

impl ClaimScan<'_> {
    /// Says what the look came to. To be called after the commit.
    pub fn finish(mut self, findings: &ScanResult) {
        self.is_done = true;
        self.hub.lock().finish(&self, findings);
    }
}

impl Drop for ClaimScan<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut hub_state = self.hub.lock();
            for number in &self.waiters {
                hub_state.give_back_notices(*number);
            }
        }
    }
}

/// A worker in a long poll; dropping it gives up its place.
pub struct Waiter {
    hub: Arc<Hub>,
    number: u64,
    wakeup: Arc<Notify>,
}

impl Waiter {
    /// Returns its number, by which looks know it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether a look might find something: it has a notice, or one of its queues is not
    /// known to be empty.
    pub fn should_look(&self) -> bool {
        let mut hub_state = self.hub.lock();
        let Some(waiter) = hub_state.waiters.get(&self.number) else { return false };
        let should_look = !waiter.notices.is_empty() || !hub_state.knows_to_be_empty(&waiter.queues);
        if !should_look {
            // Nobody is to count on a look that does not come.
            hub_state.set_about_to_scan(self.number, false);
        }
        should_look
    }

    /// Waits for a notice.
    pub async fn woken(&self) {
        let _asleep = Asleep::in_room(&self.hub);
        self.wakeup.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.hub.lock().leave(self.number);
    }
}

/// Counts somebody as asleep until it is dropped.
struct Asleep<'a>(&'a Hub);

impl<'a> Asleep<'a> {
    fn in_room(hub: &'a Hub) -> Self {
        hub.asleep.fetch_add(1, Ordering::AcqRel);
        Asleep(hub)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.asleep.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
