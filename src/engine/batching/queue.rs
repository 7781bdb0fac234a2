//! The queue of a batcher: the calls that wait, the turn to form a batch, and who is woken when.
//!
//! The cast:
//! - *Callers* add calls.
//! - *Serving tasks* run batches, one each. A task that has nothing to run is *idle*.
//! - The *turn* is the right to form the next batch. One task at a time has it.
//! - The *watch* is the only timer. It sees to it that no call waits longer than `patience` for others.
//!
//! A batch is *due* if at least as many calls have gathered as are in flight, or if the watch has said so.
//! Waking a task costs more than queueing a call. Therefore a task is woken only if a batch is due, and a
//! task that ends a batch looks for itself.
//!
//! How no wake-up gets lost:
//! - All of this is one state under one lock ([`QueueState`]). Every change goes through
//!   [`CallQueue::change`], which looks at the state after the change and before the lock is released. If a
//!   batch is due, nobody has the turn and a task is idle, it marks the turn as granted and wakes one task.
//! - A grant is part of the state. A wake-up only says "look", so one too many does no harm. One too few is
//!   impossible: a task counts as idle from the moment when it looks and finds nothing, under the lock, and
//!   the [`Notify`] keeps a wake-up that comes between the look and the sleep.
//! - If calls gather while a task is idle and the watch sleeps, the same function wakes the watch. It then
//!   wakes itself once per `patience` until the batcher is quiet, so that callers do not start timers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::engine::batching::QueuedCall;
use crate::engine::stopping;
use crate::error::Error;

/// The calls of one batcher that wait.
pub(super) struct CallQueue<C, A> {
    state: Mutex<QueueState<C, A>>,
    capacity: usize,
    /// Wakes an idle task.
    granted: Notify,
    /// Wakes the watch.
    gathering: Notify,
}

struct QueueState<C, A> {
    calls: VecDeque<QueuedCall<C, A>>,
    calls_in_flight: usize,
    turn: TurnState,
    /// The number of tasks that wait for the turn.
    idle_tasks: usize,
    /// The time since which at least one task is idle, if one is.
    idle_since: Instant,
    /// The time when a call was last added to an empty queue.
    gathering_since: Instant,
    /// Whether the watch has found that the calls have waited long enough.
    is_overdue: bool,
    /// Whether the watch will look again without being woken.
    is_watched: bool,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnState {
    Free,
    /// An idle task has been woken to take it.
    Granted,
    Taken,
}

enum Wake {
    Task,
    Watch,
    Nobody,
}

enum NextLook {
    At(Instant),
    WhenGathering,
    Never,
}

/// What a task that wants the turn gets.
enum TurnAnswer {
    Taken { gathering_since: Instant },
    Wait,
    Closed,
}

impl<C, A> QueueState<C, A> {
    fn is_due(&self) -> bool {
        let is_complete = self.calls.len() >= self.calls_in_flight || self.is_overdue;
        self.turn == TurnState::Free && !self.calls.is_empty() && is_complete
    }

    /// Returns whether calls gather that an idle task could run, so that their wait must be limited.
    fn must_be_watched(&self) -> bool {
        self.idle_tasks > 0 && self.turn == TurnState::Free && !self.calls.is_empty()
    }

    fn has_ended(&self) -> bool {
        self.is_closed && self.calls.is_empty()
    }

    /// Returns who must be woken after a change.
    fn next_wake(&mut self) -> Wake {
        if self.idle_tasks > 0 && self.is_due() {
            self.turn = TurnState::Granted;
            return Wake::Task;
        }
        if self.must_be_watched() && !self.is_watched {
            self.is_watched = true;
            return Wake::Watch;
        }
        Wake::Nobody
    }

    /// Returns the time since which the calls wait for each other while a task could run them.
    fn attended_since(&self) -> Instant {
        let idle_since = if self.idle_tasks > 0 { self.idle_since } else { Instant::now() };
        self.gathering_since.max(idle_since)
    }

    /// Takes the turn if it is granted, to whomever, or if a batch is due. Otherwise counts the task as
    /// idle. `is_idle` says whether it is counted.
    fn take_turn(&mut self, is_idle: &mut bool) -> TurnAnswer {
        let answer = if self.turn == TurnState::Granted || self.is_due() {
            self.turn = TurnState::Taken;
            self.is_overdue = false;
            TurnAnswer::Taken { gathering_since: self.attended_since() }
        } else if self.has_ended() {
            TurnAnswer::Closed
        } else {
            TurnAnswer::Wait
        };
        self.count_idle(is_idle, matches!(answer, TurnAnswer::Wait));
        answer
    }

    fn count_idle(&mut self, was_idle: &mut bool, is_idle: bool) {
        match (*was_idle, is_idle) {
            (false, true) if self.idle_tasks == 0 => (self.idle_tasks, self.idle_since) = (1, Instant::now()),
            (false, true) => self.idle_tasks += 1,
            (true, false) => self.idle_tasks -= 1,
            _ => {}
        }
        *was_idle = is_idle;
    }

    /// Looks at the calls on behalf of the watch.
    fn look(&mut self, patience: Duration) -> NextLook {
        if self.has_ended() {
            return NextLook::Never;
        }
        // Without calls in flight every call is due, and without an idle task nobody could run them.
        if self.calls_in_flight == 0 || self.idle_tasks == 0 {
            self.is_watched = false;
            return NextLook::WhenGathering;
        }
        let now = Instant::now();
        if !self.must_be_watched() {
            return NextLook::At(now + patience);
        }
        let overdue_at = self.attended_since() + patience;
        if now < overdue_at {
            return NextLook::At(overdue_at);
        }
        self.is_overdue = true;
        NextLook::At(now + patience)
    }
}

impl<C, A> CallQueue<C, A> {
    /// Returns a queue of at most `capacity` calls, and its side for the serving tasks.
    pub(super) fn new(capacity: usize) -> (Arc<Self>, Arc<ServingSide<C, A>>) {
        let now = Instant::now();
        let state = QueueState {
            calls: VecDeque::new(),
            calls_in_flight: 0,
            turn: TurnState::Free,
            idle_tasks: 0,
            idle_since: now,
            gathering_since: now,
            is_overdue: false,
            is_watched: false,
            is_closed: false,
        };
        let queue = Arc::new(CallQueue {
            state: Mutex::new(state),
            capacity,
            granted: Notify::new(),
            gathering: Notify::new(),
        });
        (queue.clone(), Arc::new(ServingSide(queue)))
    }

    /// Adds a call, or refuses it if the queue is full or closed.
    pub(super) fn push(&self, call: QueuedCall<C, A>) -> Result<(), Error> {
        self.change(|state| {
            if state.is_closed {
                return Err(stopping());
            }
            if state.calls.len() >= self.capacity {
                return Err(Error::Overloaded);
            }
            if state.calls.is_empty() {
                state.gathering_since = Instant::now();
            }
            state.calls.push_back(call);
            Ok(())
        })
    }

    /// Returns the number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.lock().calls.len()
    }

    /// Returns whether calls are in flight or wait.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.lock();
        state.calls_in_flight > 0 || !state.calls.is_empty()
    }

    /// Refuses further calls. The serving tasks end when they have run those that wait.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake_all();
    }

    /// Waits for the turn. `ended` is the number of calls that the task has run since its last turn.
    /// Returns `None` when the queue is closed and empty.
    pub(super) async fn next_turn(&self, ended: usize) -> Option<Turn<'_, C, A>> {
        let (mut ended, mut is_idle) = (ended, false);
        loop {
            // Before the look: from now on this task is woken by `close`, and one of the idle tasks by a grant.
            let woken = self.granted.notified();
            let answer = self.change(|state| {
                state.calls_in_flight -= std::mem::take(&mut ended);
                state.take_turn(&mut is_idle)
            });
            match answer {
                TurnAnswer::Taken { gathering_since } => {
                    return Some(Turn { queue: self, gathering_since, starting: 0 });
                }
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
        let wake = state.next_wake();
        drop(state);
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
        self.gathering.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<C, A>> {
        // No code panics between two related changes, so the state is consistent even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to form the next batch. Dropping it lets the next task have it.
pub(super) struct Turn<'a, C, A> {
    queue: &'a CallQueue<C, A>,
    /// The time since which the calls gather.
    pub gathering_since: Instant,
    starting: usize,
}

impl<C, A> Turn<'_, C, A> {
    /// Takes the first call and the calls behind it, up to `max_weight`. Drops all cancelled calls on the
    /// way, without a limit, because the memory that they occupy is not counted anywhere any more.
    pub(super) fn take_batch(&mut self, max_weight: usize) -> Vec<QueuedCall<C, A>> {
        let (mut batch, mut cancelled, mut weight) = (Vec::new(), Vec::new(), 0);
        let mut state = self.queue.lock();
        while let Some(waiting) = state.calls.pop_front() {
            if !waiting.call.time.is_wanted() {
                cancelled.push(waiting);
            } else if !batch.is_empty() && weight + waiting.weight > max_weight {
                state.calls.push_front(waiting);
                // From here on the calls that are left gather for the next batch.
                state.gathering_since = Instant::now();
                break;
            } else {
                weight += waiting.weight;
                batch.push(waiting);
            }
        }
        // Callers must not wait while payloads are freed.
        drop(state);
        drop(cancelled);
        batch
    }

    /// Ends the turn and starts a batch of `calls` calls.
    pub(super) fn start_batch(mut self, calls: usize) {
        self.starting = calls;
    }
}

impl<C, A> Drop for Turn<'_, C, A> {
    fn drop(&mut self) {
        self.queue.change(|state| {
            state.turn = TurnState::Free;
            state.calls_in_flight += self.starting;
        });
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
            std::mem::take(&mut state.calls)
        };
        self.0.wake_all();
        drop(abandoned);
    }
}

#[cfg(test)]
mod tests;
