//! The turn of a task: it takes the calls of a batch and starts it.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::batching::QueuedCall;
use crate::engine::batching::lanes::Service;
use crate::engine::batching::load::BatchWeights;
use crate::engine::batching::queue::CallQueue;
use crate::engine::batching::queue::state::TurnState;

/// The weight, in rows, that one namespace may have in a batch while others call as well. A batch of this weight takes a
/// few milliseconds, so nobody waits for long behind a loud one. A single call may exceed it.
pub(super) const SHARED_WEIGHT: usize = 100;

/// The right to form the next batch. Dropping it lets the next task have it.
pub(in crate::engine::batching) struct Turn<'a, C, A> {
    queue: &'a CallQueue<C, A>,
    service: Service,
    /// The time since which the calls gather.
    pub gathering_since: Instant,
    /// The calls that it has taken, until they are started.
    taken: BatchWeights,
    /// The number of calls that it has started.
    started: usize,
}

/// A batch that runs. It must be given back to the queue when it has ended.
#[derive(Debug, Default)]
pub(in crate::engine::batching) struct StartedBatch {
    pub calls: usize,
    pub weights: BatchWeights,
    /// How long it took, once it has ended.
    pub took: Option<Duration>,
}

impl<'a, C, A> Turn<'a, C, A> {
    pub(super) fn new(queue: &'a CallQueue<C, A>, service: Service, gathering_since: Instant) -> Self {
        Turn { queue, service, gathering_since, taken: BatchWeights::new(), started: 0 }
    }

    /// Takes calls up to `max_weight`, with a fair share for each namespace ([`Lanes`](super::super::lanes::Lanes)).
    /// Drops all cancelled calls on the way, without a limit, because the memory that they occupy is not counted
    /// anywhere any more. An express batch does not exceed `max_weight`, not even with its first call.
    pub(in crate::engine::batching) fn take_batch(&mut self, max_weight: usize) -> Vec<QueuedCall<C, A>> {
        let (mut batch, mut cancelled, mut weight) = (Vec::new(), Vec::new(), 0);
        let service = self.service;
        let mut state = self.queue.lock();
        let share = if state.calls.is_shared() { SHARED_WEIGHT } else { usize::MAX };
        while let Some(next) = state.calls.peek(service) {
            let (namespace, next_weight) = (next.namespace, next.weight);
            let may_exceed = batch.is_empty() && service == Service::Ordinary;
            if !next.call.time.is_wanted() {
                cancelled.extend(state.calls.pop(service, 0));
                state.load.remove(namespace, next_weight);
                continue;
            }
            let of_namespace = self.taken.entry(namespace).or_default();
            if weight + next_weight > max_weight && !may_exceed {
                // From here on the calls that are left gather for the next batch.
                state.gathering_since = Instant::now();
                break;
            } else if service == Service::Ordinary && *of_namespace > 0 && *of_namespace + next_weight > share {
                state.calls.hold_back();
                state.gathering_since = Instant::now();
            } else {
                weight += next_weight;
                *of_namespace += next_weight;
                batch.extend(state.calls.pop(service, next_weight));
            }
        }
        state.calls.release();
        state.load.take(&self.taken);
        // Callers must not wait while payloads are freed.
        drop(state);
        drop(cancelled);
        batch
    }

    /// Ends the turn and starts a batch of `calls` calls.
    pub(in crate::engine::batching) fn start_batch(mut self, calls: usize) -> StartedBatch {
        self.started = calls;
        StartedBatch { calls, weights: std::mem::take(&mut self.taken), took: None }
    }
}

impl<C, A> Drop for Turn<'_, C, A> {
    fn drop(&mut self) {
        self.queue.change(|state| {
            if self.service == Service::Ordinary {
                state.turn = TurnState::Free;
                if self.started > 0 {
                    state.overlap.begin(state.calls_in_flight);
                    state.calls_in_flight += self.started;
                }
            }
            // Calls that were taken and not started will not run.
            state.load.end(&self.taken);
        });
    }
}
