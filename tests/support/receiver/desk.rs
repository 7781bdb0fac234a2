//! What all connections of a receiver share: the script and the recorded requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::{Recorded, Reply};

/// Records requests and decides their responses.
pub(super) struct ReceiverState {
    script: Mutex<Script>,
    received: Mutex<Vec<Recorded>>,
    counts: watch::Sender<Counts>,
}

/// The queued replies are used first, then the rule decides.
pub(super) struct Script {
    /// Replies to events of which no request has arrived before.
    pub next_events: VecDeque<Reply>,
    pub next: VecDeque<Reply>,
    pub rule: Box<dyn FnMut(&Recorded) -> Reply + Send>,
}

/// Current and total counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub received: usize,
    pub in_flight: usize,
    pub most_in_flight: usize,
    pub connections: usize,
}

impl ReceiverState {
    pub(super) fn new() -> Self {
        let script = Script { next_events: VecDeque::new(), next: VecDeque::new(), rule: Box::new(|_| Reply::ok()) };
        Self { script: Mutex::new(script), received: Mutex::default(), counts: watch::Sender::default() }
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("the script")
    }

    pub(super) fn so_far(&self) -> Vec<Recorded> {
        self.received.lock().expect("the books").clone()
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    /// Counts a connection and returns its number, starting from 1.
    pub(super) fn connected(&self) -> usize {
        self.counts.send_modify(|counts| counts.connections += 1);
        self.counts().connections
    }

    /// Records a request and decides its reply.
    pub(super) fn record(self: &Arc<Self>, request: Recorded) -> (Reply, InFlight) {
        // Under one lock: requests that arrive together are answered in the order in which they are
        // recorded.
        let mut received = self.received.lock().expect("the books");
        let event = request.header("waybill-event-id");
        let is_new = event.is_some() && received.iter().all(|earlier| earlier.header("waybill-event-id") != event);
        let reply = self.script().reply_to(&request, is_new);
        received.push(request);
        drop(received);
        self.counts.send_modify(|counts| {
            counts.received += 1;
            counts.in_flight += 1;
            counts.most_in_flight = counts.most_in_flight.max(counts.in_flight);
        });
        (reply, InFlight(self.clone()))
    }
}

impl Script {
    fn reply_to(&mut self, request: &Recorded, is_new_event: bool) -> Reply {
        let of_event = if is_new_event { self.next_events.pop_front() } else { None };
        of_event.or_else(|| self.next.pop_front()).unwrap_or_else(|| (self.rule)(request))
    }
}

/// A request whose response is not complete. Dropping it marks the response as complete.
pub(super) struct InFlight(Arc<ReceiverState>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.in_flight -= 1);
    }
}
