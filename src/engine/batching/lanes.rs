//! The calls that wait for a batcher: one lane per namespace, so that a loud namespace does not starve the others.
//!
//! - *Order.* Within a lane, calls are served in the order of their arrival. Among lanes, the one that has been served
//!   least comes first (start-time fair queueing): each lane has a virtual time, which advances by the weight of the
//!   calls that are taken from it. A lane that was empty begins at the present virtual time, so nobody can save up. With
//!   one namespace this is a plain queue. A call costs one look into an ordered set, whatever waits.
//! - *Size of a batch.* A batch of one namespace may be large, and whoever arrives while it runs waits for its end. So
//!   while several namespaces call ([`Lanes::is_shared`]), a batch takes only a part of what one of them has waiting,
//!   and the lane is held back ([`Lanes::hold_back`]) until the batch is complete.
//! - *Service.* A lane is served either by the ordinary tasks or by the express task ([`Service`]), never by both.
//! - *Room.* While there is room, a namespace may take all of it. When there is none, each namespace that has calls
//!   waiting is entitled to an equal share. A call of a namespace within its share takes the place of the latest call
//!   of one that exceeds it, and that one is refused. So there is always room for the others, however many are loud.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ids::NamespaceId;

/// The time for which a queue counts as shared after calls of two namespaces have followed each other.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The tasks that serve a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Ordinary,
    Express,
}

/// The waiting calls of all namespaces.
pub(super) struct Lanes<T> {
    lanes: HashMap<NamespaceId, Lane<T>>,
    /// The lanes of the ordinary tasks, in the order in which they are served. All of them have calls.
    order: BTreeSet<(u64, NamespaceId)>,
    /// The same for the express task.
    express_order: BTreeSet<(u64, NamespaceId)>,
    /// The namespaces that the express task serves, whether they have calls or not.
    express: HashSet<NamespaceId>,
    /// The number of calls of these namespaces.
    express_len: usize,
    /// The lanes that are left out of the batch that is being formed.
    held_back: Vec<(u64, NamespaceId)>,
    /// The namespace of the latest call, and the time until which the queue counts as shared.
    latest: Option<NamespaceId>,
    shared_until: Option<Instant>,
    /// The virtual time of the lane that was served last.
    now: u64,
    len: usize,
    /// A lane that exceeded its share when that was last looked up.
    loud: Option<NamespaceId>,
}

struct Lane<T> {
    calls: VecDeque<T>,
    /// The virtual time at which its first call is served.
    next_at: u64,
}

/// What becomes of a call that wants to wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission<T> {
    Admitted,
    /// It took the place of this call, which must be refused.
    InPlaceOf(T),
    Refused(T),
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Lanes {
            lanes: HashMap::new(),
            order: BTreeSet::new(),
            express_order: BTreeSet::new(),
            express: HashSet::new(),
            express_len: 0,
            held_back: Vec::new(),
            latest: None,
            shared_until: None,
            now: 0,
            len: 0,
            loud: None,
        }
    }
}

impl<T> Lanes<T> {
    /// Returns the number of calls of all namespaces.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of calls that wait for a service.
    pub(super) fn waiting_for(&self, service: Service) -> usize {
        match service {
            Service::Ordinary => self.len - self.express_len,
            Service::Express => self.express_len,
        }
    }

    /// Returns the service of a namespace.
    pub(super) fn service_of(&self, namespace: NamespaceId) -> Service {
        if self.express.contains(&namespace) { Service::Express } else { Service::Ordinary }
    }

    /// Returns the namespaces that the express task serves.
    pub(super) fn express(&self) -> &HashSet<NamespaceId> {
        &self.express
    }

    /// Returns whether calls of a namespace wait.
    pub(super) fn has_calls_of(&self, namespace: NamespaceId) -> bool {
        self.lanes.contains_key(&namespace)
    }

    /// Has a namespace served by another service from now on, with all its calls that wait.
    pub(super) fn move_to(&mut self, service: Service, namespace: NamespaceId) {
        if self.service_of(namespace) == service {
            return;
        }
        let position = self.lanes.get(&namespace).map(|lane| (lane.next_at, namespace));
        let waiting = self.waiting_of(namespace);
        match service {
            Service::Express => {
                self.express.insert(namespace);
                self.express_len += waiting;
                position.map(|position| self.order.remove(&position));
                self.express_order.extend(position);
            }
            Service::Ordinary => {
                self.express.remove(&namespace);
                self.express_len -= waiting;
                position.map(|position| self.express_order.remove(&position));
                self.order.extend(position);
            }
        }
    }

    /// Returns whether several namespaces have called lately.
    pub(super) fn is_shared(&self) -> bool {
        self.lanes.len() > 1 || self.shared_until.is_some_and(|until| Instant::now() < until)
    }

    /// Leaves the lane that would be served next out, until [`Lanes::release`].
    pub(super) fn hold_back(&mut self) {
        self.held_back.extend(self.order.pop_first());
    }

    /// Lets all lanes take part again.
    pub(super) fn release(&mut self) {
        self.order.extend(self.held_back.drain(..));
    }

    /// Adds a call, if there is room for `capacity` calls in total.
    pub(super) fn push(&mut self, namespace: NamespaceId, call: T, capacity: usize) -> Admission<T> {
        if self.latest.replace(namespace).is_some_and(|latest| latest != namespace) {
            self.shared_until = Some(Instant::now() + SHARED_FOR);
        }
        if self.len < capacity {
            self.add(namespace, call);
            return Admission::Admitted;
        }
        let waiting = self.waiting_of(namespace);
        let share = capacity / (self.lanes.len() + usize::from(waiting == 0));
        match if waiting < share { self.drop_latest_above(share) } else { None } {
            Some(dropped) => {
                self.add(namespace, call);
                Admission::InPlaceOf(dropped)
            }
            None => Admission::Refused(call),
        }
    }

    /// Returns the call that a service serves next.
    pub(super) fn peek(&self, service: Service) -> Option<&T> {
        let order = if service == Service::Express { &self.express_order } else { &self.order };
        let (_, namespace) = order.first()?;
        self.lanes.get(namespace)?.calls.front()
    }

    /// Takes the call that a service serves next, and charges `weight` to its namespace.
    pub(super) fn pop(&mut self, service: Service, weight: usize) -> Option<T> {
        let order = if service == Service::Express { &mut self.express_order } else { &mut self.order };
        let (at, namespace) = order.pop_first()?;
        let lane = self.lanes.get_mut(&namespace)?;
        let call = lane.calls.pop_front();
        lane.next_at += weight as u64;
        if lane.calls.is_empty() {
            self.lanes.remove(&namespace);
        } else {
            order.insert((lane.next_at, namespace));
        }
        self.len -= usize::from(call.is_some());
        match service {
            Service::Ordinary => self.now = at,
            Service::Express => self.express_len -= usize::from(call.is_some()),
        }
        call
    }

    /// Takes all calls, in no particular order.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        std::mem::take(self).lanes.into_values().flat_map(|lane| lane.calls).collect()
    }

    fn waiting_of(&self, namespace: NamespaceId) -> usize {
        self.lanes.get(&namespace).map_or(0, |lane| lane.calls.len())
    }

    fn add(&mut self, namespace: NamespaceId, call: T) {
        let (now, service) = (self.now, self.service_of(namespace));
        let lane = self.lanes.entry(namespace).or_insert_with(|| Lane { calls: VecDeque::new(), next_at: now });
        if lane.calls.is_empty() {
            let order = if service == Service::Express { &mut self.express_order } else { &mut self.order };
            order.insert((lane.next_at, namespace));
        }
        lane.calls.push_back(call);
        self.len += 1;
        self.express_len += usize::from(service == Service::Express);
    }

    /// Drops the latest call of a lane with more than `share` calls. Returns `None` if there is no such lane. A lane
    /// that was found is used as long as it exceeds the share, so that a full queue is not searched for every call.
    fn drop_latest_above(&mut self, share: usize) -> Option<T> {
        let exceeds = |lane: &Lane<T>| lane.calls.len() > share;
        let is_still_loud = self.loud.is_some_and(|namespace| self.lanes.get(&namespace).is_some_and(exceeds));
        if !is_still_loud {
            let longest = self.lanes.iter().max_by_key(|(_, lane)| lane.calls.len());
            self.loud = longest.filter(|(_, lane)| exceeds(lane)).map(|(namespace, _)| *namespace);
        }
        // It keeps at least `share` calls, so it stays in the order.
        let loud = self.loud?;
        let dropped = self.lanes.get_mut(&loud)?.calls.pop_back();
        self.len -= usize::from(dropped.is_some());
        self.express_len -= usize::from(dropped.is_some() && self.service_of(loud) == Service::Express);
        dropped
    }
}

#[cfg(test)]
mod tests;
