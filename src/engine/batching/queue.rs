//! The queue of a batcher: the calls that wait, the turn to form a batch, and who is woken when.
//!
//! The cast:
//! - *Callers* add calls.
//! - *Ordinary tasks* run batches, one each. A task that has nothing to run is *idle*.
//! - The *turn* is the right to form the next ordinary batch. One task at a time has it.
//! - The *express task* runs small batches of quiet namespaces while another one is dominant ([`super::load`]), so that they
//!   do not wait for its batches.
//! - The *watch* is the only timer. It sees to it that no call waits longer than `patience` for others.
//!
//! A batch is *due* if none is in flight; if at least as many calls have gathered as are in flight, and it may run beside
//! another one ([`overlap`]); or if the watch has said so.
//! Waking a task costs more than queueing a call. Therefore a task is woken only if a batch is due, and a
//! task that ends a batch looks for itself.
//!
//! A namespace is served by the express task from a call of it, or the end of a batch with calls of it, at which it is
//! quiet and has nothing in flight. The express task serves its further calls, too, in the order of their arrival. After
//! each of its batches, it leaves those namespaces to the ordinary tasks that have no calls or are not quiet any more.
//! With one namespace, or many equal ones, none is dominant, and the express task never runs. A namespace that is dominant
//! in one batcher counts as dominant in all that share its limiter, for a while ([`Dominance`]).
//!
//! **A namespace never has calls in an ordinary and in an express batch at the same time.** So claims of the two do not
//! compete for the same head of a queue. The one exception: if an express batch takes longer than `patience`, because
//! it waits for a locked row, then the ordinary tasks serve its namespaces at once. A batcher with only one ordinary task
//! does without the exception, because its batches must not meet.
//!
//! How no wake-up gets lost:
//! - All of this is one state under one lock ([`QueueState`]). Every change goes through
//!   [`CallQueue::change`], which looks at the state after the change and before the lock is released. If a
//!   batch is due, nobody has the turn and a task is idle, it marks the turn as granted and wakes one task. If calls
//!   wait for the express task and it is idle, it marks that task as woken and wakes it.
//! - A grant is part of the state. A wake-up only says "look", so one too many does no harm. One too few is
//!   impossible: a task counts as idle from the moment when it looks and finds nothing, under the lock, and
//!   the [`Notify`] keeps a wake-up that comes between the look and the sleep.
//! - If calls gather while a task is idle and the watch sleeps, the same function wakes the watch. It then
//!   wakes itself once per `patience` until the batcher is quiet, so that callers do not start timers.

mod express;
mod overlap;
mod state;
mod turn;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::domain::ids::NamespaceId;
use crate::engine::batching::dominance::Dominance;
use crate::engine::batching::lanes::{Admission, Service};
use crate::engine::batching::queue::overlap::Overlap;
use crate::engine::batching::queue::state::{NextLook, QueueState, TurnAnswer, Wake};
pub(super) use crate::engine::batching::queue::turn::{StartedBatch, Turn};
use crate::engine::batching::{BatcherSettings, QueuedCall};
use crate::engine::stopping;
use crate::error::Error;

/// The calls of one batcher that wait.
pub(super) struct CallQueue<C, A> {
    state: Mutex<QueueState<C, A>>,
    capacity: usize,
    /// Wakes an idle ordinary task.
    granted: Notify,
    /// Wakes the express task.
    express: Notify,
    /// Wakes the watch.
    gathering: Notify,
}

impl<C, A> CallQueue<C, A> {
    /// Returns the queue of a batcher, and its side for the serving tasks. Batchers of one limiter share their `dominance`.
    pub(super) fn new(shape: &BatcherSettings, dominance: Arc<Dominance>) -> (Arc<Self>, Arc<ServingSide<C, A>>) {
        let overlap = Overlap::new(shape.avoids_overlap);
        let queue = Arc::new(CallQueue {
            state: Mutex::new(QueueState::new(shape.width, overlap, dominance)),
            capacity: shape.capacity,
            granted: Notify::new(),
            express: Notify::new(),
            gathering: Notify::new(),
        });
        (queue.clone(), Arc::new(ServingSide(queue)))
    }

    /// Adds a call, or refuses it if the queue is closed, or full of calls of its namespace. Returns the call of a
    /// louder namespace that had to make room, and that must be refused.
    pub(super) fn push(&self, call: QueuedCall<C, A>) -> Result<Option<QueuedCall<C, A>>, Error> {
        self.change(|state| {
            if state.is_closed {
                return Err(stopping());
            }
            match state.admit(call, self.capacity) {
                Admission::Admitted => Ok(None),
                Admission::InPlaceOf(dropped) => Ok(Some(dropped)),
                Admission::Refused(_) => Err(Error::Overloaded),
            }
        })
    }

    /// Returns the number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.lock().calls.len()
    }

    /// Returns whether calls of a namespace wait.
    pub(super) fn has_calls_of(&self, namespace: NamespaceId) -> bool {
        self.lock().calls.has_calls_of(namespace)
    }

    /// Returns whether calls are in flight or wait.
    pub(super) fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    /// Refuses further calls. The serving tasks end when they have run those that wait.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake_all();
    }

    /// Waits for the turn to form a batch. `ended` is the batch that the task has run since its last turn. Returns `None`
    /// when the queue is closed and has nothing for the task.
    pub(super) async fn next_turn(&self, service: Service, ended: StartedBatch) -> Option<Turn<'_, C, A>> {
        let (mut ended, mut is_idle) = (ended, false);
        let wakes = if service == Service::Express { &self.express } else { &self.granted };
        loop {
            // Before the look: from now on this task is woken by `close`, and one of the idle tasks by a grant.
            let woken = wakes.notified();
            let answer = self.change(|state| {
                state.end_batch(service, std::mem::take(&mut ended));
                match service {
                    Service::Ordinary => state.take_turn(&mut is_idle),
                    Service::Express => state.take_express_turn(),
                }
            });
            match answer {
                TurnAnswer::Taken { gathering_since } => return Some(Turn::new(self, service, gathering_since)),
                TurnAnswer::Closed => {
                    // The others have nothing left to wait for either.
                    self.wake_all();
                    return None;
                }
                TurnAnswer::Wait => woken.await,
            }
        }
    }

    /// Limits the time for which calls wait for each other while a task is idle.
    pub(super) async fn watch(self: Arc<Self>, patience: Duration) {
        loop {
            match self.change(|state| state.look(patience)) {
                NextLook::At(time) => sleep_until(time).await,
                NextLook::WhenGathering => self.gathering.notified().await,
                NextLook::Never => return,
            }
        }
    }

    /// Changes the state and wakes whoever must act on it.
    fn change<R>(&self, change: impl FnOnce(&mut QueueState<C, A>) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let (wake, wakes_express) = (state.next_wake(), state.wakes_express());
        drop(state);
        if wakes_express {
            self.express.notify_one();
        }
        match wake {
            Wake::Task => self.granted.notify_one(),
            Wake::Watch => self.gathering.notify_one(),
            Wake::Nobody => {}
        }
        result
    }

    /// Makes all idle tasks and the watch look at the state.
    fn wake_all(&self) {
        self.granted.notify_waiters();
        self.express.notify_one();
        self.gathering.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<C, A>> {
        // No code panics between two related changes, so the state is consistent even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the serving tasks. When the last of them has ended, calls that still wait are dropped, so
/// that their callers get an error, and no more are taken.
pub(super) struct ServingSide<C, A>(Arc<CallQueue<C, A>>);

impl<C, A> std::ops::Deref for ServingSide<C, A> {
    type Target = CallQueue<C, A>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<C, A> Drop for ServingSide<C, A> {
    fn drop(&mut self) {
        let abandoned = {
            let mut state = self.0.lock();
            state.is_closed = true;
            state.calls.take_all()
        };
        self.0.wake_all();
        drop(abandoned);
    }
}

#[cfg(test)]
mod tests;
