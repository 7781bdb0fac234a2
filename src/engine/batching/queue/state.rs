//! The state of the queue of a batcher: what waits, who serves it, and who is woken next.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::batching::QueuedCall;
use crate::engine::batching::dominance::Dominance;
use crate::engine::batching::lanes::{Admission, Lanes, Service};
use crate::engine::batching::load::Load;
use crate::engine::batching::queue::express::ExpressTask;
use crate::engine::batching::queue::overlap::Overlap;
use crate::engine::batching::queue::turn::StartedBatch;

/// The state of a [`CallQueue`](super::CallQueue).
pub(super) struct QueueState<C, A> {
    pub calls: Lanes<QueuedCall<C, A>>,
    pub load: Load,
    pub dominance: Arc<Dominance>,
    /// The number of calls in ordinary batches.
    pub calls_in_flight: usize,
    pub overlap: Overlap,
    pub turn: TurnState,
    pub express: ExpressTask,
    /// The number of ordinary tasks.
    pub width: usize,
    /// The number of ordinary tasks that wait for the turn.
    pub idle_tasks: usize,
    /// The time since which at least one task is idle, if one is.
    idle_since: Instant,
    /// The time when a call was last added to an empty queue of the ordinary tasks.
    pub gathering_since: Instant,
    /// Whether the watch has found that the calls have waited long enough.
    pub is_overdue: bool,
    /// Whether the watch will look again without being woken.
    pub is_watched: bool,
    pub is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnState {
    Free,
    /// An idle task has been woken to take it.
    Granted,
    Taken,
}

pub(super) enum Wake {
    Task,
    Watch,
    Nobody,
}

pub(super) enum NextLook {
    At(Instant),
    WhenGathering,
    Never,
}

/// What a task that wants the turn gets.
pub(super) enum TurnAnswer {
    Taken { gathering_since: Instant },
    Wait,
    Closed,
}

impl<C, A> QueueState<C, A> {
    /// Returns the state of a queue with `width` ordinary tasks.
    pub(super) fn new(width: usize, overlap: Overlap, dominance: Arc<Dominance>) -> Self {
        let now = Instant::now();
        QueueState {
            calls: Lanes::default(),
            load: Load::default(),
            dominance,
            calls_in_flight: 0,
            overlap,
            turn: TurnState::Free,
            express: ExpressTask::Absent,
            width,
            idle_tasks: 0,
            idle_since: now,
            gathering_since: now,
            is_overdue: false,
            is_watched: false,
            is_closed: false,
        }
    }

    /// Adds a call, if there is room for `capacity` calls in total.
    pub(super) fn admit(&mut self, call: QueuedCall<C, A>, capacity: usize) -> Admission<QueuedCall<C, A>> {
        let (namespace, weight) = (call.namespace, call.weight);
        let was_empty = self.ordinary_calls() == 0;
        let admission = self.calls.push(namespace, call, capacity);
        match &admission {
            Admission::Refused(_) => return admission,
            Admission::InPlaceOf(dropped) => self.load.remove(dropped.namespace, dropped.weight),
            Admission::Admitted => {}
        }
        self.load.add(namespace, weight);
        self.consider_express(namespace);
        if was_empty && self.ordinary_calls() > 0 {
            self.gathering_since = Instant::now();
        }
        admission
    }

    pub(super) fn is_busy(&self) -> bool {
        self.calls_in_flight > 0 || !self.calls.is_empty() || matches!(self.express, ExpressTask::Busy { .. })
    }

    /// Counts a batch as ended.
    pub(super) fn end_batch(&mut self, service: Service, batch: StartedBatch) {
        self.load.end(&batch.weights);
        if service == Service::Ordinary {
            self.calls_in_flight -= batch.calls;
            // The time of an express batch says nothing about those that gather.
            if let Some(took) = batch.took {
                self.overlap.end(batch.weights.values().sum(), took);
            }
        }
        for namespace in batch.weights.into_keys() {
            if self.calls.has_calls_of(namespace) {
                self.consider_express(namespace);
            }
        }
    }

    pub(super) fn ordinary_calls(&self) -> usize {
        self.calls.waiting_for(Service::Ordinary)
    }

    fn is_due(&self) -> bool {
        self.turn == TurnState::Free && self.ordinary_calls() > 0 && (self.is_complete() || self.is_overdue)
    }

    /// Returns whether enough calls have gathered for a batch, also beside another one.
    fn is_complete(&self) -> bool {
        self.calls_in_flight == 0
            || self.ordinary_calls() >= self.calls_in_flight
                && self.overlap.allows(self.load.waiting().max(self.load.in_flight()))
    }

    /// Returns whether calls gather that an idle task could run, so that their wait must be limited.
    fn must_be_watched(&self) -> bool {
        self.idle_tasks > 0 && self.turn == TurnState::Free && self.ordinary_calls() > 0
    }

    fn has_ended(&self) -> bool {
        self.is_closed && self.calls.is_empty()
    }

    /// Returns who must be woken after a change.
    pub(super) fn next_wake(&mut self) -> Wake {
        if self.idle_tasks > 0 && self.is_due() {
            self.turn = TurnState::Granted;
            return Wake::Task;
        }
        if (self.must_be_watched() || self.express_attended_since().is_some()) && !self.is_watched {
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
    pub(super) fn take_turn(&mut self, is_idle: &mut bool) -> TurnAnswer {
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
    pub(super) fn look(&mut self, patience: Duration) -> NextLook {
        if self.has_ended() {
            return NextLook::Never;
        }
        let express_at = self.look_at_express(patience);
        let Some(time) = self.look_at_ordinary(patience).into_iter().chain(express_at).min() else {
            self.is_watched = false;
            return NextLook::WhenGathering;
        };
        NextLook::At(time)
    }

    /// Marks the calls of the ordinary tasks as overdue if they are. Returns the time to look again, or `None` if that
    /// is not necessary.
    fn look_at_ordinary(&mut self, patience: Duration) -> Option<Instant> {
        // Without calls in flight every call is due, and without an idle task nobody could run them.
        if self.calls_in_flight == 0 || self.idle_tasks == 0 {
            return None;
        }
        let now = Instant::now();
        if !self.must_be_watched() {
            return Some(now + patience);
        }
        let overdue_at = self.attended_since() + patience;
        if now < overdue_at {
            return Some(overdue_at);
        }
        self.is_overdue = true;
        Some(now + patience)
    }
}
