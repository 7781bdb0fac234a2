//! The queues that have waiters, and the scans of those queues.

use std::collections::BTreeSet;

use crate::engine::waiting::hub::{Hub, HubState, Queues};
use crate::store::tables::ready::QueueKey;

pub(super) struct QueueState {
    /// The number of its waiters.
    pub waiters: usize,
    /// The waiters that can take another notice and are not scanning.
    pub listed: BTreeSet<u64>,
    /// The waiters that can take another notice but are scanning. They get one only if `listed` is empty.
    pub scanning: BTreeSet<u64>,
    /// The number of its waiters that are about to scan.
    pub about_to_scan: usize,
    /// The number of the last notice about it.
    pub last_notice: u64,
    /// Whether a scan that began after the last notice left nothing in it.
    pub is_empty: bool,
}

impl QueueState {
    pub(super) fn unlist(&mut self, number: u64) {
        self.listed.remove(&number);
        self.scanning.remove(&number);
    }
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct ScanResult {
    /// Whether anything was claimed.
    pub found: bool,
    /// The queues in which entries were seen and left, with the number of these entries.
    pub left: Vec<(QueueKey, usize)>,
}

impl ScanResult {
    fn left_something_in(&self, queue: &QueueKey) -> bool {
        self.left.iter().any(|(left, _)| left == queue)
    }
}

impl HubState {
    /// Adds a queue with its first waiter. Its content is unknown, so it counts as not empty. A scan that
    /// began earlier cannot tell what has arrived since, so opening a queue counts as a notice.
    pub(super) fn open_queue(&mut self, queue: &QueueKey) {
        self.notices += 1;
        let state = QueueState {
            waiters: 1,
            listed: BTreeSet::new(),
            scanning: BTreeSet::new(),
            about_to_scan: 0,
            last_notice: self.notices,
            is_empty: false,
        };
        self.queues.insert(queue.clone(), state);
    }

    pub(super) fn are_known_empty(&self, queues: &[QueueKey]) -> bool {
        queues.iter().all(|queue| self.queues.get(queue).is_some_and(|state| state.is_empty))
    }

    pub(super) fn note_arrival(&mut self, queues: &[QueueKey]) {
        self.notices += 1;
        for queue in queues {
            if let Some(state) = self.queues.get_mut(queue) {
                state.last_notice = self.notices;
                state.is_empty = false;
            }
        }
    }

    pub(super) fn take_up_notices(&mut self, number: u64) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        // An earlier scan may still be under way if its caller did not wait for its end.
        waiter.taken_up.append(&mut waiter.notices);
        waiter.is_scanning = true;
        self.list(number);
        self.set_about_to_scan(number, false);
    }

    /// Gives back the notices that a failed scan took up. Does not wake the waiter: it scans again after
    /// a pause, and a wake-up would cut the pause short.
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

    /// Ends a waiter's scan. Returns the notices that the scan took up.
    fn end_scan(&mut self, number: u64) -> Vec<Queues> {
        let Some(waiter) = self.waiters.get_mut(&number) else { return Vec::new() };
        waiter.is_scanning = false;
        let taken_up = std::mem::take(&mut waiter.taken_up);
        self.list(number);
        taken_up
    }

    fn finish(&mut self, scan: &ClaimScan<'_>, result: &ScanResult) {
        for queue in scan.queues.iter().filter(|queue| !result.left_something_in(queue)) {
            if let Some(state) = self.queues.get_mut(queue) {
                state.is_empty = state.is_empty || state.last_notice <= scan.began;
            }
        }
        let mut taken_up: Vec<Queues> = Vec::new();
        for number in &scan.waiters {
            taken_up.extend(self.end_scan(*number));
        }
        // If entries were left and none was claimed, other scans have locked them and are claiming them.
        if !result.found || self.closed {
            return;
        }
        for notice in taken_up {
            if notice.iter().any(|queue| result.left_something_in(queue)) {
                self.deliver(&notice);
            }
        }
        for (queue, entries) in &result.left {
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

/// A scan under way. It counts as failed if it is dropped without [`ClaimScan::finish`].
pub struct ClaimScan<'a> {
    pub(super) hub: &'a Hub,
    pub(super) began: u64,
    pub(super) queues: Queues,
    pub(super) waiters: Vec<u64>,
    pub(super) is_done: bool,
}

impl ClaimScan<'_> {
    /// Reports the result of the scan. Call it after the commit.
    pub fn finish(mut self, result: &ScanResult) {
        self.is_done = true;
        self.hub.lock().finish(&self, result);
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
