//! The rules of reservations, one test each. The model test of the hub checks them together with those of
//! notices and scans.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::*;
use crate::domain::ids::NamespaceId;
use crate::engine::waiting::hub::ScanResult;

/// A worker that sleeps in the hub until it is woken.
struct Sleeper {
    sleep: LocalBoxFuture<'static, ()>,
    waiter: Arc<Waiter>,
}

impl Sleeper {
    /// Enters a worker that finds its queues empty and sleeps.
    fn enter(hub: &Arc<Hub>, names: &[&str], wanted: usize) -> Self {
        let waiter = Arc::new(hub.enter(queues(names), wanted).unwrap());
        waiter.accept_hand_over(Recipient { worker_id: format!("w:{}", waiter.number()), lease_seconds: 60.0 });
        if waiter.should_scan() {
            hub.begin_scan(queues(names), vec![waiter.number()]).finish(&ScanResult::default());
        }
        let awake = waiter.clone();
        let mut sleeper = Sleeper { sleep: async move { awake.woken().await }.boxed_local(), waiter };
        assert!(!sleeper.is_woken());
        sleeper
    }

    fn is_woken(&mut self) -> bool {
        (&mut self.sleep).now_or_never().is_some()
    }

    /// Returns whether it has been woken with events.
    fn has_events(&mut self) -> bool {
        self.is_woken() && self.waiter.take_events().is_some()
    }

    fn number(&self) -> u64 {
        self.waiter.number()
    }
}

fn hub() -> Arc<Hub> {
    Arc::new(Hub::new(100))
}

fn queues(names: &[&str]) -> Queues {
    names.iter().map(|name| QueueKey { namespace: NamespaceId::DEFAULT, name: (*name).to_owned() }).collect()
}

/// Returns small events, each with these queues, in the order in which they would be claimed.
fn arrivals(events: &[&[&str]]) -> Vec<NewArrival> {
    let arrival = |(event, names): (usize, &&[&str])| NewArrival { event, queues: queues(names), bytes: 4096 };
    events.iter().enumerate().map(arrival).collect()
}

/// Returns the events of each reserved waiter, by its number.
fn shares(reservation: &Reservation<'_>) -> Vec<(u64, Vec<usize>)> {
    reservation.waiters().iter().map(|waiter| (waiter.number, waiter.events.clone())).collect()
}

fn deliver_all(reservation: &Reservation<'_>) {
    for waiter in reservation.waiters() {
        reservation.deliver(waiter, ClaimedBatch::empty());
    }
}

#[test]
fn each_event_reserves_the_oldest_waiter_of_its_queues() {
    let hub = hub();
    let (mut first, mut second) = (Sleeper::enter(&hub, &["a"], 1), Sleeper::enter(&hub, &["a", "b"], 1));
    let reservation = hub.reserve(&arrivals(&[&["a", "b"], &["b"], &["a"], &["z"]]));
    assert_eq!(shares(&reservation), [(first.number(), vec![0]), (second.number(), vec![1])]);
    deliver_all(&reservation);
    assert!(first.has_events() && second.has_events());
}

#[test]
fn a_waiter_that_wants_several_events_gets_several_of_one_publication() {
    let hub = hub();
    let (first, second) = (Sleeper::enter(&hub, &["a"], 2), Sleeper::enter(&hub, &["a"], 2));
    let reservation = hub.reserve(&arrivals(&[&["a"], &["a"], &["a"]]));
    assert_eq!(shares(&reservation), [(first.number(), vec![0, 1]), (second.number(), vec![2])]);
}

#[test]
fn the_payloads_for_one_waiter_are_limited() {
    let hub = hub();
    let (first, second) = (Sleeper::enter(&hub, &["a"], 9), Sleeper::enter(&hub, &["a"], 9));
    let mut events = arrivals(&[&["a"], &["a"], &["a"]]);
    (events[0].bytes, events[1].bytes) = (CLAIM_BYTES + 1, CLAIM_BYTES);
    let reservation = hub.reserve(&events);
    assert_eq!(shares(&reservation), [(first.number(), vec![0]), (second.number(), vec![1])]);
}

#[test]
fn a_waiter_is_reserved_for_one_publication_at_a_time() {
    let hub = hub();
    let _waiter = Sleeper::enter(&hub, &["a"], 9);
    let _first = hub.reserve(&arrivals(&[&["a"]]));
    assert!(hub.reserve(&arrivals(&[&["a"]])).waiters().is_empty());
}

#[test]
fn a_waiter_is_not_reserved_unless_all_its_queues_are_known_to_be_empty() {
    let hub = hub();
    let mut waiter = Sleeper::enter(&hub, &["a", "b"], 1);
    hub.lock().note_arrival(&queues(&["b"]));
    assert!(hub.reserve(&arrivals(&[&["a"]])).waiters().is_empty(), "what waits in b comes first");
    assert!(!waiter.is_woken());
}

#[test]
fn a_waiter_with_a_notice_is_not_reserved() {
    let hub = hub();
    let _waiter = Sleeper::enter(&hub, &["a"], 2);
    hub.notify(&queues(&["a"]));
    assert!(hub.reserve(&arrivals(&[&["a"]])).waiters().is_empty());
}

#[test]
fn a_waiter_that_does_not_sleep_is_not_reserved() {
    let hub = hub();
    let Sleeper { sleep, waiter: _waiter } = Sleeper::enter(&hub, &["a"], 1);
    drop(sleep);
    assert!(hub.reserve(&arrivals(&[&["a"]])).waiters().is_empty());
}

/// A claim with an idempotency key must go through its own transaction, and must not wait for ever behind others.
#[test]
fn an_event_is_not_handed_past_an_older_waiter_that_claims_by_itself() {
    let hub = hub();
    let older = Sleeper::enter(&hub, &["a"], 1);
    hub.lock().waiters.get_mut(&older.number()).unwrap().hand_over.recipient = None;
    let _younger = Sleeper::enter(&hub, &["a"], 1);
    assert!(hub.reserve(&arrivals(&[&["a"]])).waiters().is_empty());
}

#[test]
fn an_event_does_not_overtake_one_of_the_same_publication() {
    let hub = hub();
    let older = Sleeper::enter(&hub, &["a"], 1);
    hub.lock().waiters.get_mut(&older.number()).unwrap().hand_over.recipient = None;
    let _younger = Sleeper::enter(&hub, &["a", "b"], 1);
    assert!(hub.reserve(&arrivals(&[&["a"], &["b"]])).waiters().is_empty(), "the first event enters a queue of both");
    assert_eq!(hub.reserve(&arrivals(&[&["b"]])).waiters().len(), 1);
}

#[test]
fn a_reserved_waiter_takes_no_notices_and_does_not_scan() {
    let hub = hub();
    let (mut first, mut second) = (Sleeper::enter(&hub, &["a"], 1), Sleeper::enter(&hub, &["a"], 1));
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    hub.notify(&queues(&["a"]));
    assert!(!first.is_woken() && second.is_woken());
    assert!(!first.waiter.should_scan() && second.waiter.should_scan());
    deliver_all(&reservation);
    assert!(first.has_events());
}

#[test]
fn a_waiter_whose_reservation_ends_without_events_scans_for_what_it_has_missed() {
    let hub = hub();
    let mut waiter = Sleeper::enter(&hub, &["a"], 1);
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    hub.notify(&queues(&["a"]));
    assert!(!waiter.is_woken());
    drop(reservation);
    assert!(waiter.is_woken() && waiter.waiter.should_scan() && waiter.waiter.take_events().is_none());
}

#[test]
fn a_waiter_whose_reservation_ended_can_be_reserved_again() {
    let hub = hub();
    let mut waiter = Sleeper::enter(&hub, &["a"], 1);
    drop(hub.reserve(&arrivals(&[&["a"]])));
    assert!(waiter.is_woken() && !waiter.waiter.should_scan());
    let awake = waiter.waiter.clone();
    waiter.sleep = async move { awake.woken().await }.boxed_local();
    assert!(!waiter.is_woken());
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    deliver_all(&reservation);
    assert!(waiter.has_events());
}

#[test]
fn events_of_a_reservation_that_has_ended_are_not_delivered() {
    let hub = hub();
    let waiter = Sleeper::enter(&hub, &["a"], 1);
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    reservation.release();
    deliver_all(&reservation);
    assert!(waiter.waiter.take_events().is_none());
}

#[test]
fn a_reserved_waiter_may_leave() {
    let hub = hub();
    let waiter = Sleeper::enter(&hub, &["a"], 1);
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    drop(waiter);
    deliver_all(&reservation);
    drop(reservation);
    assert!(hub.is_empty() && hub.awaited_queues().is_empty());
}

#[test]
fn a_waiter_whose_time_is_over_waits_for_the_end_of_its_reservation() {
    let hub = hub();
    let Sleeper { sleep, waiter } = Sleeper::enter(&hub, &["a"], 1);
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    drop(sleep);
    let mut last = waiter.last_events().boxed_local();
    assert!((&mut last).now_or_never().is_none());
    deliver_all(&reservation);
    assert!(last.now_or_never().unwrap().is_some());
    drop(reservation);
}

#[test]
fn a_waiter_whose_time_is_over_leaves_if_its_reservation_ends_without_events() {
    let hub = hub();
    let Sleeper { sleep, waiter } = Sleeper::enter(&hub, &["a"], 1);
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    drop(sleep);
    let mut last = waiter.last_events().boxed_local();
    assert!((&mut last).now_or_never().is_none());
    drop(reservation);
    assert!(last.now_or_never().unwrap().is_none());
}

#[test]
fn a_hub_that_is_closed_reserves_no_waiters() {
    let hub = hub();
    let _waiter = Sleeper::enter(&hub, &["a"], 1);
    let reservation = hub.reserve(&arrivals(&[&["a"]]));
    hub.close();
    assert!(hub.reserve(&arrivals(&[&["a"]])).waiters().is_empty());
    drop(reservation);
}
