//! The waiting room: workers that asked for work when there was none.
//!
//! A worker takes a [`Ticket`] before it looks for work, so that nothing which arrives while
//! it looks can be missed. Whatever enters `ready` wakes one waiter, the one that has waited
//! longest for any of its queues. Whoever was woken and found something wakes the next
//! (there may be more); whoever was woken and went away passes the word on. A waiter costs a
//! ticket and no statement.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::Error;

/// The waiting room of one server.
pub struct Hub {
    room: Mutex<Room>,
    capacity: usize,
    asleep: AtomicUsize,
}

#[derive(Default)]
struct Room {
    closed: bool,
    next_number: u64,
    waiters: BTreeMap<u64, Waiter>,
    /// Who can be woken for a queue; a waiter that was woken is not listed until it goes
    /// back to waiting.
    by_queue: HashMap<String, BTreeSet<u64>>,
}

struct Waiter {
    queues: Arc<[String]>,
    bell: Arc<Notify>,
    /// Was told of something and has not looked yet.
    is_woken: bool,
    /// Is about to look, or looking: others may rely on it.
    owes_look: bool,
}

impl Hub {
    /// A room for so many.
    pub fn new(capacity: usize) -> Self {
        Hub { room: Mutex::default(), capacity, asleep: AtomicUsize::new(0) }
    }

    /// Takes a place in the room.
    pub fn enter(self: &Arc<Self>, queues: Arc<[String]>) -> Result<Ticket, Error> {
        let mut room = self.lock();
        if room.waiters.len() >= self.capacity {
            return Err(Error::Overloaded);
        }
        let number = room.next_number;
        room.next_number += 1;
        let bell = Arc::new(Notify::new());
        room.waiters
            .insert(number, Waiter { queues: queues.clone(), bell: bell.clone(), is_woken: false, owes_look: true });
        room.list(number, &queues);
        Ok(Ticket { hub: self.clone(), number, queues, bell })
    }

    /// Wakes the one who has waited longest for any of these queues.
    pub fn wake_one(&self, queues: &[String]) {
        self.lock().wake_one(queues);
    }

    /// Wakes everybody, to look for themselves.
    pub fn wake_all(&self) {
        let mut room = self.lock();
        let all: Vec<u64> = room.waiters.keys().copied().collect();
        for number in all {
            room.wake(number);
        }
    }

    /// Sends everybody home: their waits end at once, and so will all later ones.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake_all();
    }

    /// Whether the room is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lock().waiters.len()
    }

    /// How many of them have looked for work, found none, and wait to be woken.
    pub fn asleep(&self) -> usize {
        self.asleep.load(Ordering::Acquire)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The queues that somebody waits for.
    pub fn awaited_queues(&self) -> Vec<String> {
        self.lock().by_queue.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        // Nothing in here panics half-way; a poisoned room is still a consistent one.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn list(&mut self, number: u64, queues: &[String]) {
        for queue in queues {
            self.by_queue.entry(queue.clone()).or_default().insert(number);
        }
    }

    fn unlist(&mut self, number: u64, queues: &[String]) {
        for queue in queues {
            if let Some(numbers) = self.by_queue.get_mut(queue) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_queue.remove(queue);
                }
            }
        }
    }

    fn wake_one(&mut self, queues: &[String]) {
        let longest = queues.iter().filter_map(|queue| self.by_queue.get(queue)?.first()).min().copied();
        if let Some(number) = longest {
            self.wake(number);
        }
    }

    fn wake(&mut self, number: u64) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        waiter.is_woken = true;
        waiter.bell.notify_one();
        let queues = waiter.queues.clone();
        self.unlist(number, &queues);
    }
}

/// A place in the room; leaving it is dropping it.
pub struct Ticket {
    hub: Arc<Hub>,
    number: u64,
    queues: Arc<[String]>,
    bell: Arc<Notify>,
}

impl Ticket {
    /// Says that whatever woke us is being looked into: from now on new arrivals wake us
    /// again. Keeps the place in the line.
    pub fn look_again(&self) {
        let mut room = self.hub.lock();
        if let Some(waiter) = room.waiters.get_mut(&self.number) {
            waiter.is_woken = false;
            waiter.owes_look = true;
        }
        let queues = self.queues.clone();
        room.list(self.number, &queues);
    }

    /// Says that we have looked, or that somebody else does.
    pub fn looked(&self) {
        if let Some(waiter) = self.hub.lock().waiters.get_mut(&self.number) {
            waiter.owes_look = false;
        }
    }

    /// Whether for each of its queues somebody else has been waiting longer and not been
    /// woken. Then whatever there was, they would have found or been told of, and looking
    /// would be in vain: idle workers that come and go cost no statements.
    pub fn has_company(&self) -> bool {
        let room = self.hub.lock();
        let is_first = |numbers: &BTreeSet<u64>| numbers.first() == Some(&self.number);
        self.queues.iter().all(|queue| room.by_queue.get(queue).is_some_and(|numbers| !is_first(numbers)))
    }

    /// Waits to be woken.
    pub async fn woken(&self) {
        let _asleep = Asleep::in_room(&self.hub);
        self.bell.notified().await;
    }

    /// Something was found, so there may be more: wakes the next in line.
    pub fn pass_on(&self) {
        let mut room = self.hub.lock();
        let queues = self.queues.clone();
        room.unlist(self.number, &queues);
        room.wake_one(&queues);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut room = self.hub.lock();
        let queues = self.queues.clone();
        room.unlist(self.number, &queues);
        let left = room.waiters.remove(&self.number);
        // Woken and gone before looking: somebody else must look.
        if left.is_some_and(|waiter| waiter.is_woken || waiter.owes_look) && !room.closed {
            room.wake_one(&queues);
        }
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
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn hub() -> Arc<Hub> {
        Arc::new(Hub::new(100))
    }

    fn enter(hub: &Arc<Hub>, queues: &[&str]) -> Ticket {
        hub.enter(queues.iter().map(ToString::to_string).collect()).unwrap()
    }

    fn is_woken(ticket: &Ticket) -> bool {
        ticket.woken().now_or_never().is_some()
    }

    fn wake(hub: &Hub, queues: &[&str]) {
        hub.wake_one(&queues.iter().map(ToString::to_string).collect::<Vec<_>>());
    }

    #[test]
    fn one_arrival_wakes_the_one_who_waited_longest() {
        let hub = hub();
        let (first, second) = (enter(&hub, &["a", "b"]), enter(&hub, &["b"]));
        wake(&hub, &["b"]);
        assert!(is_woken(&first));
        assert!(!is_woken(&second));
        wake(&hub, &["b"]);
        assert!(is_woken(&second));
    }

    #[test]
    fn a_foreign_queue_wakes_nobody() {
        let hub = hub();
        let ticket = enter(&hub, &["a"]);
        wake(&hub, &["z"]);
        assert!(!is_woken(&ticket));
    }

    #[test]
    fn who_is_woken_and_leaves_passes_the_word_on() {
        let hub = hub();
        let (first, second) = (enter(&hub, &["a"]), enter(&hub, &["a"]));
        wake(&hub, &["a"]);
        drop(first);
        assert!(is_woken(&second));
    }

    #[test]
    fn who_leaves_while_others_rely_on_its_look_passes_the_word_on() {
        let hub = hub();
        let (first, second) = (enter(&hub, &["a"]), enter(&hub, &["a"]));
        assert!(!first.has_company());
        assert!(second.has_company());
        second.looked();
        drop(first);
        assert!(is_woken(&second));
    }

    #[test]
    fn company_must_wait_for_every_queue() {
        let hub = hub();
        let (_first, second) = (enter(&hub, &["a"]), enter(&hub, &["a", "b"]));
        assert!(!second.has_company());
    }

    #[test]
    fn who_looked_and_found_nothing_keeps_its_place() {
        let hub = hub();
        let (first, second) = (enter(&hub, &["a"]), enter(&hub, &["a"]));
        wake(&hub, &["a"]);
        assert!(is_woken(&first));
        first.look_again();
        wake(&hub, &["a"]);
        assert!(is_woken(&first));
        assert!(!is_woken(&second));
    }

    #[test]
    fn who_found_something_wakes_the_next() {
        let hub = hub();
        let (first, second) = (enter(&hub, &["a"]), enter(&hub, &["a"]));
        first.pass_on();
        assert!(is_woken(&second));
    }

    #[test]
    fn a_full_room_refuses_and_an_empty_one_holds_nothing() {
        let hub = Arc::new(Hub::new(1));
        let ticket = enter(&hub, &["a"]);
        assert!(hub.enter(["a".to_owned()].into()).is_err());
        drop(ticket);
        assert!(hub.is_empty());
        assert!(hub.awaited_queues().is_empty());
    }

    #[test]
    fn closing_ends_every_wait() {
        let hub = hub();
        let (first, second) = (enter(&hub, &["a"]), enter(&hub, &["b"]));
        hub.close();
        assert!(is_woken(&first) && is_woken(&second) && hub.is_closed());
    }
}
