//! Which namespaces the express task serves, and when.

use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ids::NamespaceId;
use crate::engine::batching::lanes::Service;
use crate::engine::batching::load::EXPRESS_WEIGHT;
use crate::engine::batching::queue::state::{QueueState, TurnAnswer};

/// What the express task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpressTask {
    /// There is none, or not yet, or not any more.
    Absent,
    Idle,
    /// It has been woken to take a batch.
    Woken,
    Busy {
        since: Instant,
        /// Whether it has taken so long that the ordinary tasks serve its namespaces.
        is_overtaken: bool,
    },
}

impl<C, A> QueueState<C, A> {
    /// Has a namespace served by the express task if it is quiet beside a dominant one and has nothing in flight.
    pub(super) fn consider_express(&mut self, namespace: NamespaceId) {
        let has_room = match self.express {
            ExpressTask::Absent | ExpressTask::Busy { is_overtaken: true, .. } => false,
            _ => self.calls.waiting_for(Service::Express) < EXPRESS_WEIGHT,
        };
        if has_room && self.is_quiet(namespace) && !self.load.has_in_flight(namespace) {
            self.calls.move_to(Service::Express, namespace);
        }
    }

    /// Returns whether a namespace asks for little beside one that is dominant here, or lately was in another batcher.
    fn is_quiet(&self, namespace: NamespaceId) -> bool {
        if !self.load.is_small_beside_others(namespace) {
            return false;
        }
        if let Some(dominant) = self.load.dominant() {
            self.dominance.note(dominant);
            return dominant != namespace;
        }
        let dominant = self.dominance.namespace();
        dominant.is_some_and(|dominant| dominant != namespace && self.load.has_calls_of(dominant))
    }

    /// Leaves namespaces of the express task to the ordinary tasks, except those that `keep` selects.
    fn leave_express(&mut self, keep: impl Fn(&Self, NamespaceId) -> bool) {
        let leaving: Vec<NamespaceId> =
            self.calls.express().iter().copied().filter(|namespace| !keep(self, *namespace)).collect();
        let was_empty = self.ordinary_calls() == 0;
        leaving.into_iter().for_each(|namespace| self.calls.move_to(Service::Ordinary, namespace));
        if was_empty && self.ordinary_calls() > 0 {
            self.gathering_since = Instant::now();
        }
    }

    /// Takes the turn of the express task if calls wait for it. Call it while no express batch is in flight.
    pub(super) fn take_express_turn(&mut self) -> TurnAnswer {
        self.leave_express(|state, namespace| state.calls.has_calls_of(namespace) && state.is_quiet(namespace));
        let now = Instant::now();
        if self.calls.waiting_for(Service::Express) > 0 {
            self.express = ExpressTask::Busy { since: now, is_overtaken: false };
            TurnAnswer::Taken { gathering_since: now }
        } else if self.is_closed {
            self.express = ExpressTask::Absent;
            TurnAnswer::Closed
        } else {
            self.express = ExpressTask::Idle;
            TurnAnswer::Wait
        }
    }

    /// Returns whether the express task must be woken after a change.
    pub(super) fn wakes_express(&mut self) -> bool {
        let is_needed = self.express == ExpressTask::Idle && self.calls.waiting_for(Service::Express) > 0;
        if is_needed {
            self.express = ExpressTask::Woken;
        }
        is_needed
    }

    /// Returns the time since which an express batch runs that calls wait for, if they may overtake it.
    pub(super) fn express_attended_since(&self) -> Option<Instant> {
        match self.express {
            ExpressTask::Busy { since, is_overtaken: false }
                if self.width > 1 && self.calls.waiting_for(Service::Express) > 0 =>
            {
                Some(since)
            }
            _ => None,
        }
    }

    /// Lets the ordinary tasks overtake an express batch that takes longer than `patience`. Returns the time to look
    /// again if it is too early for that.
    pub(super) fn look_at_express(&mut self, patience: Duration) -> Option<Instant> {
        let since = self.express_attended_since()?;
        if Instant::now() < since + patience {
            return Some(since + patience);
        }
        self.express = ExpressTask::Busy { since, is_overtaken: true };
        self.leave_express(|_, _| false);
        None
    }
}
