//! Publications in the model: they reserve waiters, and are stored, refused or held up.

use proptest::prelude::*;

use super::{World, names};
use crate::engine::claim::ClaimedBatch;
use crate::engine::waiting::hub::{NewArrival, Queues, Reservation};

/// One step of a publication.
#[derive(Debug, Clone)]
pub(super) enum PublicationStep {
    /// A publication of events with these queues reserves waiters.
    Begin(Vec<u8>),
    /// A publication is held up, and its waiters are released.
    HoldUp { which: u8 },
    /// A publication is stored or refused.
    End { which: u8, is_stored: bool },
}

pub(super) fn steps() -> impl Strategy<Value = PublicationStep> {
    prop_oneof![
        4 => prop::collection::vec(1u8..16, 1..4).prop_map(PublicationStep::Begin),
        1 => any::<u8>().prop_map(|which| PublicationStep::HoldUp { which }),
        4 => (any::<u8>(), prop::bool::weighted(0.7))
            .prop_map(|(which, is_stored)| PublicationStep::End { which, is_stored }),
    ]
}

/// A publication under way.
pub(super) struct Publication<'a> {
    reservation: Reservation<'a>,
    events: Vec<Queues>,
    is_held_up: bool,
}

impl World<'_> {
    pub(super) fn run_publication(&mut self, step: &PublicationStep) {
        match step {
            PublicationStep::Begin(events) => self.begin_publication(events.iter().map(|bits| names(*bits)).collect()),
            PublicationStep::HoldUp { which } => {
                let count = self.publications.len().max(1);
                if let Some(publication) = self.publications.get_mut(*which as usize % count) {
                    publication.reservation.release();
                    publication.is_held_up = true;
                }
            }
            PublicationStep::End { which, is_stored } => self.end_publication(*which as usize, *is_stored),
        }
    }

    /// Ends all publications: those of one event are refused, the others are stored.
    pub(super) fn end_publications(&mut self) {
        while let Some(publication) = self.publications.first() {
            self.end_publication(0, publication.events.len() > 1);
        }
        self.wake_up();
    }

    fn begin_publication(&mut self, events: Vec<Queues>) {
        let arrival = |(event, queues): (usize, &Queues)| NewArrival { event, queues: queues.clone(), bytes: 1 };
        let arrivals: Vec<NewArrival> = events.iter().enumerate().map(arrival).collect();
        let reservation = self.hub.reserve(&arrivals);
        self.assert_nothing_is_overtaken(&reservation, &events);
        self.publications.push(Publication { reservation, events, is_held_up: false });
    }

    /// Nothing may be overtaken that is in a queue of a reserved waiter and whose notice has arrived, nor an
    /// earlier event of the same publication.
    fn assert_nothing_is_overtaken(&self, reservation: &Reservation<'_>, events: &[Queues]) {
        let handed_over: Vec<usize> = reservation.waiters().iter().flat_map(|waiter| waiter.events.clone()).collect();
        for waiter in reservation.waiters() {
            let worker = &self.workers[&waiter.number()];
            assert!((1..=worker.wanted).contains(&waiter.events.len()));
            let may_have = |queues: &Queues| worker.queues.iter().any(|queue| queues.contains(queue));
            assert!(waiter.events.iter().all(|event| may_have(&events[*event])));
            let is_known = |position: &&(u8, u64)| !self.notices.iter().any(|(noticed, _)| *noticed == **position);
            let overtaken = self.ready.iter().find(|(position, queues)| may_have(queues) && is_known(position));
            assert!(overtaken.is_none(), "{overtaken:?} is overtaken");
            let last = waiter.events.iter().max().copied().unwrap_or_default();
            let earlier = (0..last).find(|event| !handed_over.contains(event) && may_have(&events[*event]));
            assert!(earlier.is_none(), "{earlier:?} of the same publication is overtaken");
        }
    }

    fn end_publication(&mut self, which: usize, is_stored: bool) {
        if self.publications.is_empty() {
            return;
        }
        let Publication { reservation, mut events, is_held_up } =
            self.publications.remove(which % self.publications.len());
        if !is_stored {
            return;
        }
        let mut released = Vec::new();
        for waiter in reservation.waiters() {
            let share: Vec<Queues> = waiter.events.iter().map(|event| std::mem::take(&mut events[*event])).collect();
            reservation.deliver(waiter, ClaimedBatch::empty());
            if self.workers.contains_key(&waiter.number()) && !is_held_up {
                self.delivered.insert(waiter.number(), share);
            } else {
                released.extend(share);
            }
        }
        drop(reservation);
        for queues in events.into_iter().filter(|queues| !queues.is_empty()).chain(released) {
            self.publish(queues, 1);
        }
    }
}
