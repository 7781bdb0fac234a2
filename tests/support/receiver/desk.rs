//! What all connections of a receiver share: the script, and the books.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::{Recorded, Reply};

/// Where requests are written down and their answers are decided.
pub struct Desk {
    script: Mutex<Script>,
    received: Mutex<Vec<Recorded>>,
    counts: watch::Sender<Counts>,
}

/// How to answer: the next ones first, then by the rule.
pub struct Script {
    pub next: VecDeque<Reply>,
    pub rule: Box<dyn FnMut(&Recorded) -> Reply + Send>,
}

/// How much there is of everything, now and altogether.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub received: usize,
    pub in_flight: usize,
    pub most_in_flight: usize,
    pub connections: usize,
}

impl Desk {
    pub fn new() -> Self {
        let script = Script { next: VecDeque::new(), rule: Box::new(|_| Reply::ok()) };
        Self { script: Mutex::new(script), received: Mutex::default(), counts: watch::Sender::default() }
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("the script")
    }

    pub fn so_far(&self) -> Vec<Recorded> {
        self.received.lock().expect("the books").clone()
    }

    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub fn watch(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    /// Counts a connection; answers its number, from 1.
    pub fn connected(&self) -> usize {
        self.counts.send_modify(|counts| counts.connections += 1);
        self.counts().connections
    }

    /// Writes a request down and decides how to answer it.
    pub fn take_in(self: &Arc<Self>, request: Recorded) -> (Reply, InFlight) {
        // Under the one lock, so that two who come at once are answered in the order kept.
        let mut received = self.received.lock().expect("the books");
        let reply = self.script().reply_to(&request);
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
    fn reply_to(&mut self, request: &Recorded) -> Reply {
        self.next.pop_front().unwrap_or_else(|| (self.rule)(request))
    }
}

/// A request that is not answered to the end; dropped, it is.
pub struct InFlight(Arc<Desk>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.in_flight -= 1);
    }
}
