//! The traces of events that workers have claimed lately, so that a settlement, which names only the event, joins the
//! event's trace without another query.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::domain::ids::EventKey;
use crate::domain::trace_context::TraceContext;

/// The maximum number of events; the oldest one is forgotten first.
const MAX_REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    traces: HashMap<EventKey, TraceContext>,
    /// The events, oldest first.
    order: VecDeque<EventKey>,
}

impl Remembered {
    pub(super) fn add(&self, event: EventKey, context: TraceContext) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.traces.insert(event, context).is_some() {
            return;
        }
        state.order.push_back(event);
        if state.order.len() > MAX_REMEMBERED
            && let Some(oldest) = state.order.pop_front()
        {
            state.traces.remove(&oldest);
        }
    }

    pub(super) fn get(&self, event: EventKey) -> Option<TraceContext> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).traces.get(&event).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{EventId, NamespaceId};

    #[test]
    fn the_oldest_events_are_forgotten() {
        let remembered = Remembered::default();
        let event = |number: usize| NamespaceId::DEFAULT.event(EventId(number as i64));
        let context = TraceContext { trace_id: [1; 16], span_id: [2; 8], is_sampled: true };
        for number in 0..MAX_REMEMBERED + 3 {
            remembered.add(event(number), context);
            remembered.add(event(number), context);
        }
        assert_eq!((remembered.get(event(2)), remembered.get(event(3))), (None, Some(context)));
        assert_eq!(remembered.get(event(MAX_REMEMBERED + 2)), Some(context));
        assert_eq!(remembered.get(NamespaceId(2).event(EventId(5))), None, "another namespace");
        assert_eq!(remembered.0.lock().unwrap().traces.len(), MAX_REMEMBERED);
    }
}
