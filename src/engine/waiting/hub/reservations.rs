//! Reservations: the waiters that get events from the statement that publishes them.
//!
//! A publication that is about to be stored reserves a waiter for each event that one waits for. The
//! statement then stores these events as claimed, and after its commit the waiters receive them. Each
//! event goes to the waiter that would have got its notice: the oldest one of its queues. If that waiter
//! cannot be reserved, the event enters `ready` as usual, and is not given to a younger waiter.
//!
//! Nothing that waits may be overtaken. Therefore a waiter can be reserved only while it sleeps, has no
//! notice, and all its queues are known to be empty; and not for an event behind one of the same
//! publication that enters a queue of the waiter.
//!
//! A reserved waiter takes no notices: they go to other waiters. It does not scan either, because then
//! it could leave with what it found before it gets what it was reserved for. When the reservation ends
//! without events, the waiter scans if a notice came meanwhile.
//!
//! A waiter may leave while it is reserved. What is delivered to it then is dropped, which releases it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::store::tables::events::Recipient;
use crate::store::tables::ready::QueueKey;

use crate::engine::claim::{CLAIM_BYTES, ClaimedBatch};
use crate::engine::waiting::hub::{Hub, HubState, Queues, Waiter};

/// What the hub knows about handing events over to one waiter.
#[derive(Default)]
pub(super) struct HandOverState {
    /// To whom events are handed over. `None` if the waiter wants to claim by itself.
    pub recipient: Option<Arc<Recipient>>,
    /// Whether the waiter waits to be woken, and does nothing else.
    pub is_asleep: bool,
    /// The number of the reservation that it belongs to.
    pub reserved_by: Option<u64>,
    /// The events that it was reserved for. In a box, because most of the many waiters have none.
    pub events: Option<Box<ClaimedBatch>>,
}

/// An event that is about to be published and can be claimed at once.
pub struct NewArrival {
    /// The index of the event among those published together.
    pub event: usize,
    pub queues: Queues,
    /// The size of its payload, as claims count it.
    pub bytes: usize,
}

/// A waiter, and the events that are published for it.
pub struct ReservedWaiter {
    number: u64,
    wanted: usize,
    bytes: usize,
    pub recipient: Arc<Recipient>,
    /// The indices of the events, in the order in which they would be claimed.
    pub events: Vec<usize>,
}

impl ReservedWaiter {
    #[cfg(test)]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Hub {
    /// Reserves waiters for new events, which are given in the order in which they would be claimed.
    pub fn reserve(&self, arrivals: &[NewArrival]) -> Reservation<'_> {
        let mut reservation = Reservation { hub: self, number: 0, waiters: Vec::new() };
        if !arrivals.is_empty() {
            let mut hub_state = self.lock();
            hub_state.reservations += 1;
            reservation.number = hub_state.reservations;
            reservation.waiters = hub_state.reserve(reservation.number, arrivals);
        }
        reservation
    }
}

impl HubState {
    fn reserve(&mut self, reservation: u64, arrivals: &[NewArrival]) -> Vec<ReservedWaiter> {
        if self.closed {
            return Vec::new();
        }
        let mut reserved: BTreeMap<u64, ReservedWaiter> = BTreeMap::new();
        // The queues that an event of this publication enters.
        let mut entered: HashSet<&QueueKey> = HashSet::new();
        for arrival in arrivals {
            if let Some(number) = self.find_recipient(&mut reserved, &entered, arrival) {
                self.add_event(&mut reserved, number, reservation, arrival);
            } else {
                entered.extend(arrival.queues.iter());
            }
        }
        for number in reserved.keys() {
            self.list(*number);
        }
        reserved.into_values().collect()
    }

    /// Returns the oldest waiter of an event, if the event can be handed over to it.
    fn find_recipient(
        &mut self,
        reserved: &mut BTreeMap<u64, ReservedWaiter>,
        entered: &HashSet<&QueueKey>,
        arrival: &NewArrival,
    ) -> Option<u64> {
        loop {
            let number = self.oldest(&arrival.queues, |queue| &queue.listed)?;
            let is_overtaking = self.waiters.get(&number)?.queues.iter().any(|queue| entered.contains(queue));
            match reserved.get(&number) {
                _ if is_overtaking => return None,
                None => return self.can_be_reserved(number).then_some(number),
                Some(waiter) if waiter.bytes + arrival.bytes <= CLAIM_BYTES => return Some(number),
                // Its response is full, so the event is for the next waiter.
                Some(_) => self.list(number),
            }
        }
    }

    fn can_be_reserved(&self, number: u64) -> bool {
        self.waiters.get(&number).is_some_and(|waiter| {
            waiter.hand_over.recipient.is_some()
                && waiter.hand_over.is_asleep
                && waiter.hand_over.reserved_by.is_none()
                && waiter.notices.is_empty()
                && !waiter.is_about_to_scan
                && !waiter.is_scanning
                && self.are_known_empty(&waiter.queues)
        })
    }

    /// Adds an event to those of a waiter, which stays listed until it has as many as it wants.
    fn add_event(
        &mut self,
        reserved: &mut BTreeMap<u64, ReservedWaiter>,
        number: u64,
        reservation: u64,
        arrival: &NewArrival,
    ) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        let Some(recipient) = waiter.hand_over.recipient.clone() else { return };
        waiter.hand_over.reserved_by = Some(reservation);
        let none_yet = ReservedWaiter { number, wanted: waiter.wanted, bytes: 0, recipient, events: Vec::new() };
        let reserved = reserved.entry(number).or_insert(none_yet);
        reserved.events.push(arrival.event);
        reserved.bytes += arrival.bytes;
        if reserved.events.len() >= reserved.wanted {
            self.list(number);
        }
    }

    fn is_reserved_by(&self, number: u64, reservation: u64) -> bool {
        let reserved_by = |waiter: &HandOverState| waiter.reserved_by.filter(|_| waiter.events.is_none());
        self.waiters.get(&number).is_some_and(|waiter| reserved_by(&waiter.hand_over) == Some(reservation))
    }

    /// Ends the reservation of a waiter that has got no events.
    fn end_reservation(&mut self, number: u64) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        waiter.hand_over.reserved_by = None;
        // It scans if something came meanwhile. If its time is over, it has waited only for this.
        waiter.wakeup.notify_one();
        self.list(number);
    }
}

/// The waiters that are reserved for one publication. Dropping it ends the reservation of those that have
/// got no events.
pub struct Reservation<'a> {
    hub: &'a Hub,
    number: u64,
    waiters: Vec<ReservedWaiter>,
}

impl Reservation<'_> {
    pub fn waiters(&self) -> &[ReservedWaiter] {
        &self.waiters
    }

    /// Gives a waiter its events. Call it after the commit. If the waiter has left, or its reservation has
    /// ended, the events are dropped, which releases them.
    pub fn deliver(&self, waiter: &ReservedWaiter, events: ClaimedBatch) {
        let mut hub_state = self.hub.lock();
        if hub_state.is_reserved_by(waiter.number, self.number)
            && let Some(state) = hub_state.waiters.get_mut(&waiter.number)
        {
            state.hand_over.events = Some(Box::new(events));
            state.wakeup.notify_one();
        } else {
            // What dropped events do must not happen under the lock.
            drop(hub_state);
            drop(events);
        }
    }

    /// Ends the reservation of all waiters that have got no events.
    pub fn release(&self) {
        if self.waiters.is_empty() {
            return;
        }
        let mut hub_state = self.hub.lock();
        for waiter in &self.waiters {
            if hub_state.is_reserved_by(waiter.number, self.number) {
                hub_state.end_reservation(waiter.number);
            }
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Waiter {
    /// Lets publications hand events over to this waiter.
    pub fn accept_hand_over(&self, recipient: Recipient) {
        let mut hub_state = self.hub.lock();
        if let Some(waiter) = hub_state.waiters.get_mut(&self.number) {
            waiter.hand_over.recipient = Some(Arc::new(recipient));
        }
    }

    /// Returns the events that were handed over, or `None` if there are none.
    pub fn take_events(&self) -> Option<ClaimedBatch> {
        self.hub.lock().waiters.get_mut(&self.number)?.hand_over.events.take().map(|events| *events)
    }

    /// Returns the events that are handed over to a waiter whose time is over. Waits for them if it is reserved,
    /// which takes only as long as a publication.
    pub async fn last_events(&self) -> Option<ClaimedBatch> {
        loop {
            if let Some(events) = self.take_events() {
                return Some(events);
            }
            let is_reserved = |waiter: &HandOverState| waiter.reserved_by.is_some();
            if !self.hub.lock().waiters.get(&self.number).is_some_and(|waiter| is_reserved(&waiter.hand_over)) {
                return None;
            }
            self.wakeup.notified().await;
        }
    }

    pub(super) fn set_asleep(&self, is_asleep: bool) {
        if let Some(waiter) = self.hub.lock().waiters.get_mut(&self.number) {
            waiter.hand_over.is_asleep = is_asleep;
        }
    }
}

#[cfg(test)]
mod tests;
