//! The hub: workers in a long poll that wait for work.
//!
//! - A [`Waiter`] is one worker in a long poll. It enters the hub before its first scan, so that it
//!   does not miss an event that arrives during the scan.
//! - A *notice* says that an event has entered some queues. It goes to a single waiter: the oldest one
//!   of any of these queues that is not scanning. N events are N notices and reach N waiters.
//! - A [`ClaimScan`] is one claim statement on behalf of several waiters. It takes up the notices that
//!   they received before it began.
//!
//! A notice must not get lost while its event is still in the queue. Otherwise the event would wait for
//! the slow poll although a worker waits for it:
//! - A waiter that leaves passes on the notices that it has not scanned for.
//! - A scan that fails gives back the notices that it took up.
//! - A scan may claim something and leave entries in a queue: it claimed another event than the one of
//!   the notice, or earlier notices were lost. It passes on the notices about that queue. It also wakes
//!   one waiter for each entry that no other waiter is about to scan for.
//!
//! A scan that leaves nothing in a queue marks the queue as empty until the next notice about it.
//! Workers that enter in the meantime do not scan. The hub knows this only while the queue has waiters,
//! because only then do the listener and the poller report what other servers put into it. Therefore
//! 10,000 idle workers cost the database as much as ten, and workers behind a backlog scan at once and
//! share statements.
//!
//! An event that is published while a waiter sleeps at empty queues needs no notice: [`reservations`] hands
//! it over in the statement that stores it.

mod reservations;
mod scans;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

pub(crate) use crate::engine::waiting::hub::reservations::{NewArrival, Reservation};
use crate::engine::waiting::hub::scans::QueueState;
pub(crate) use crate::engine::waiting::hub::scans::{ClaimScan, ScanResult};
pub(crate) use crate::engine::waiting::hub::waiters::Waiter;
use crate::engine::waiting::hub::waiters::WaiterState;
use crate::error::Error;
use crate::store::tables::ready::QueueKey;

/// The queues of one event, or the queues that one worker takes events from. They are all of one namespace.
pub(crate) type Queues = Arc<[QueueKey]>;

/// The waiters of one server.
pub struct Hub {
    hub_state: Mutex<HubState>,
    capacity: usize,
    asleep: AtomicUsize,
}

#[derive(Default)]
struct HubState {
    closed: bool,
    next_number: u64,
    /// The number of notices so far. It shows whether a scan began before or after a notice.
    notices: u64,
    /// The number of reservations so far, by which they are told apart.
    reservations: u64,
    waiters: BTreeMap<u64, WaiterState>,
    /// The queues that have waiters.
    queues: HashMap<QueueKey, QueueState>,
}

impl Hub {
    /// Returns a hub for at most `capacity` waiters.
    pub fn new(capacity: usize) -> Self {
        Hub { hub_state: Mutex::default(), capacity, asleep: AtomicUsize::new(0) }
    }

    /// Adds a waiter for a worker that wants up to `wanted` events.
    pub fn enter(self: &Arc<Self>, queues: Queues, wanted: usize) -> Result<Waiter, Error> {
        let mut hub_state = self.lock();
        if hub_state.waiters.len() >= self.capacity {
            return Err(Error::Overloaded);
        }
        let wakeup = Arc::new(Notify::new());
        let number = hub_state.enter(queues, wakeup.clone(), wanted);
        Ok(Waiter { hub: self.clone(), number, wakeup })
    }

    /// Notifies one waiter that an event has entered these queues.
    pub fn notify(&self, queues: &Queues) {
        let mut hub_state = self.lock();
        hub_state.note_arrival(queues);
        hub_state.deliver(queues);
    }

    /// Notifies up to `events` waiters that `events` events have entered a queue.
    pub fn notify_many(&self, queue: &QueueKey, events: usize) {
        let mut hub_state = self.lock();
        let queues: Queues = [queue.clone()].into();
        hub_state.note_arrival(&queues);
        for _ in 0..events {
            if !hub_state.deliver(&queues) {
                break;
            }
        }
    }

    /// Wakes all waiters, and lets each of them scan.
    pub fn wake_all(&self) {
        self.lock().wake_all();
    }

    /// Ends all waits. Workers that enter later do not wait.
    pub fn close(&self) {
        let mut hub_state = self.lock();
        hub_state.closed = true;
        hub_state.wake_all();
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.lock().waiters.len()
    }

    /// Returns the number of waiters that sleep until they are woken.
    pub fn asleep(&self) -> usize {
        self.asleep.load(Ordering::Acquire)
    }

    /// Returns whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the queues that have waiters.
    pub fn awaited_queues(&self) -> Vec<QueueKey> {
        self.lock().queues.keys().cloned().collect()
    }

    /// Returns whether this server knows that all of these queues are empty.
    pub fn are_known_empty(&self, queues: &[QueueKey]) -> bool {
        self.lock().are_known_empty(queues)
    }

    /// Begins a scan of queues on behalf of these waiters.
    pub fn begin_scan(&self, queues: Queues, waiters: Vec<u64>) -> ClaimScan<'_> {
        let mut hub_state = self.lock();
        for number in &waiters {
            hub_state.take_up_notices(*number);
        }
        ClaimScan { hub: self, began: hub_state.notices, queues, waiters, is_done: false }
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        // No code panics between two related changes, so the state is consistent even if the lock is poisoned.
        self.hub_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
