//! The waiters: how they come and go, and how notices reach them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;

use crate::engine::claim::ClaimedBatch;
use crate::engine::waiting::hub::reservations::HandOverState;
use crate::store::tables::ready::QueueKey;

use crate::engine::waiting::hub::scans::QueueState;
use crate::engine::waiting::hub::{Hub, HubState, Queues};

pub(super) struct WaiterState {
    pub queues: Queues,
    pub wakeup: Arc<Notify>,
    /// The maximum number of events that it takes, and therefore of notices that it holds.
    pub wanted: usize,
    /// The notices that it has not scanned for yet.
    pub notices: Vec<Queues>,
    /// The notices that its current scan has taken up.
    pub taken_up: Vec<Queues>,
    /// Whether it is going to scan: it has just entered, or it has a notice.
    pub is_about_to_scan: bool,
    /// Whether a scan on its behalf is under way.
    pub is_scanning: bool,
    pub hand_over: HandOverState,
}

impl HubState {
    pub(super) fn enter(&mut self, queues: Queues, wakeup: Arc<Notify>, wanted: usize) -> u64 {
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
            hand_over: HandOverState::default(),
        };
        self.waiters.insert(number, state);
        self.list(number);
        if !self.are_known_empty(&queues) {
            self.set_about_to_scan(number, true);
        }
        number
    }

    /// Removes a waiter. Returns the events that were handed over to it and that it did not take.
    pub(super) fn leave(&mut self, number: u64) -> Option<Box<ClaimedBatch>> {
        let was_about_to_scan = self.waiters.get(&number).is_some_and(|waiter| waiter.is_about_to_scan);
        self.set_about_to_scan(number, false);
        let leaving = self.waiters.remove(&number)?;
        for queue in leaving.queues.iter() {
            if let Some(state) = self.queues.get_mut(queue) {
                state.unlist(number);
                state.waiters -= 1;
                if state.waiters == 0 {
                    self.queues.remove(queue);
                }
            }
        }
        if self.closed {
            return leaving.hand_over.events;
        }
        for notice in leaving.taken_up.iter().chain(&leaving.notices) {
            self.deliver(notice);
        }
        // Other waiters were not woken because this one was about to scan.
        if was_about_to_scan && leaving.notices.is_empty() && !self.are_known_empty(&leaving.queues) {
            self.deliver(&leaving.queues);
        }
        leaving.hand_over.events
    }

    /// Lists a waiter in its queues if it can take another notice, and removes it from the lists otherwise.
    pub(super) fn list(&mut self, number: u64) {
        let Some(waiter) = self.waiters.get(&number) else { return };
        let can_take_another = waiter.notices.len() < waiter.wanted && waiter.hand_over.reserved_by.is_none();
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

    pub(super) fn set_about_to_scan(&mut self, number: u64, is_about_to_scan: bool) {
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

    /// Gives a notice to the oldest waiter of any of its queues. Returns whether there was one.
    pub(super) fn deliver(&mut self, notice: &Queues) -> bool {
        let listed = self.oldest(notice, |queue| &queue.listed);
        let waiter = listed.or_else(|| self.oldest(notice, |queue| &queue.scanning));
        waiter.is_some_and(|number| self.give(number, notice.clone()))
    }

    /// Returns the oldest waiter in one of the lists of these queues.
    pub(super) fn oldest(&self, queues: &[QueueKey], list: fn(&QueueState) -> &BTreeSet<u64>) -> Option<u64> {
        queues.iter().filter_map(|queue| list(self.queues.get(queue)?).first()).min().copied()
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

    pub(super) fn wake_all(&mut self) {
        let all: Vec<(u64, Queues)> =
            self.waiters.iter().map(|(number, waiter)| (*number, waiter.queues.clone())).collect();
        for (number, queues) in all {
            self.note_arrival(&queues);
            self.give(number, queues);
        }
    }
}

/// A worker in a long poll. Dropping it removes it from the hub.
pub struct Waiter {
    pub(super) hub: Arc<Hub>,
    pub(super) number: u64,
    pub(super) wakeup: Arc<Notify>,
}

impl Waiter {
    /// Returns the number that identifies the waiter in scans.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether a scan might find something: the waiter has a notice, or one of its queues is
    /// not known to be empty. A reserved waiter does not scan until it knows the outcome.
    pub fn should_scan(&self) -> bool {
        let mut hub_state = self.hub.lock();
        let Some(waiter) = hub_state.waiters.get(&self.number) else { return false };
        if waiter.hand_over.reserved_by.is_some() {
            return false;
        }
        let should_scan = !waiter.notices.is_empty() || !hub_state.are_known_empty(&waiter.queues);
        if !should_scan {
            // Other waiters must be woken, because this one does not scan.
            hub_state.set_about_to_scan(self.number, false);
        }
        should_scan
    }

    /// Waits for a notice, or for events that are handed over.
    pub async fn woken(&self) {
        let _asleep = Asleep::begin(self);
        self.wakeup.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let not_taken = self.hub.lock().leave(self.number);
        // Only now: what a dropped batch does must not happen under the lock.
        drop(not_taken);
    }
}

/// Counts a waiter as asleep until it is dropped.
struct Asleep<'a>(&'a Waiter);

impl<'a> Asleep<'a> {
    fn begin(waiter: &'a Waiter) -> Self {
        waiter.set_asleep(true);
        waiter.hub.asleep.fetch_add(1, Ordering::AcqRel);
        Asleep(waiter)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.hub.asleep.fetch_sub(1, Ordering::AcqRel);
        self.0.set_asleep(false);
    }
}
