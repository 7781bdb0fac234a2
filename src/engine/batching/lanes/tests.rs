//! The rules of the lanes, one test each.

use super::*;

const LOUD: NamespaceId = NamespaceId(1);
const QUIET: NamespaceId = NamespaceId(2);
const THIRD: NamespaceId = NamespaceId(3);

fn lanes(calls: &[(NamespaceId, usize)]) -> Lanes<(NamespaceId, usize)> {
    let mut lanes = Lanes::default();
    for (namespace, count) in calls {
        for number in 0..*count {
            lanes.push(*namespace, (*namespace, number), usize::MAX);
        }
    }
    lanes
}

fn pop_all(lanes: &mut Lanes<(NamespaceId, usize)>, count: usize) -> Vec<(NamespaceId, usize)> {
    (0..count).filter_map(|_| lanes.pop(Service::Ordinary, 1)).collect()
}

#[test]
fn one_namespace_is_served_in_the_order_of_arrival() {
    let mut lanes = lanes(&[(LOUD, 5)]);
    assert_eq!(pop_all(&mut lanes, 9), (0..5).map(|number| (LOUD, number)).collect::<Vec<_>>());
    assert!(
        lanes.is_empty() && lanes.peek(Service::Ordinary).is_none() && lanes.lanes.is_empty() && lanes.order.is_empty()
    );
}

#[test]
fn a_quiet_namespace_is_served_at_once_behind_a_backlog_of_a_loud_one() {
    let mut lanes = lanes(&[(LOUD, 1_000)]);
    pop_all(&mut lanes, 100);
    lanes.push(QUIET, (QUIET, 0), usize::MAX);
    assert!(pop_all(&mut lanes, 2).contains(&(QUIET, 0)));
}

#[test]
fn namespaces_share_a_batch_equally_by_weight() {
    let mut lanes = lanes(&[(LOUD, 1_000), (QUIET, 1_000), (THIRD, 10)]);
    let (mut loud, mut quiet, mut third) = (0, 0, 0);
    // The calls of the loud namespace weigh ten times as much.
    for _ in 0..230 {
        let weight = if lanes.peek(Service::Ordinary).unwrap().0 == LOUD { 10 } else { 1 };
        match lanes.pop(Service::Ordinary, weight).unwrap().0 {
            LOUD => loud += weight,
            QUIET => quiet += 1,
            _ => third += 1,
        }
    }
    assert_eq!(third, 10);
    assert!((190..=210).contains(&loud) && (190..=210).contains(&quiet), "{loud} {quiet}");
}

#[test]
fn a_lane_that_is_held_back_is_served_again_in_its_turn() {
    let mut lanes = lanes(&[(LOUD, 3), (QUIET, 2)]);
    assert!(lanes.is_shared());
    assert_eq!(lanes.pop(Service::Ordinary, 1), Some((LOUD, 0)));
    assert_eq!(lanes.pop(Service::Ordinary, 5), Some((QUIET, 0)));
    lanes.hold_back();
    assert_eq!(lanes.peek(Service::Ordinary), Some(&(QUIET, 1)));
    lanes.hold_back();
    assert!(lanes.peek(Service::Ordinary).is_none() && lanes.len() == 3);
    lanes.release();
    assert_eq!(pop_all(&mut lanes, 3), [(LOUD, 1), (LOUD, 2), (QUIET, 1)]);
}

#[test]
fn a_queue_of_one_namespace_is_not_shared() {
    assert!(!lanes(&[(LOUD, 100)]).is_shared());
    // It stays shared for a while after the other one was served.
    let mut lanes = lanes(&[(LOUD, 100), (QUIET, 1)]);
    pop_all(&mut lanes, 50);
    assert!(lanes.is_shared());
}

#[test]
fn a_namespace_that_was_idle_has_saved_nothing_up() {
    let mut lanes = lanes(&[(LOUD, 1_000), (QUIET, 1)]);
    pop_all(&mut lanes, 500);
    for number in 1..100 {
        lanes.push(QUIET, (QUIET, number), usize::MAX);
    }
    let next = pop_all(&mut lanes, 20);
    assert_eq!(next.iter().filter(|(namespace, _)| *namespace == QUIET).count(), 10);
}

#[test]
fn when_there_is_no_room_the_loud_one_is_refused_and_the_others_are_admitted() {
    let mut lanes = lanes(&[(LOUD, 10)]);
    assert_eq!(lanes.push(LOUD, (LOUD, 10), 10), Admission::Refused((LOUD, 10)));
    for number in 0..5 {
        let expected = Admission::InPlaceOf((LOUD, 9 - number));
        assert_eq!(lanes.push(QUIET, (QUIET, number), 10), expected);
    }
    assert_eq!(lanes.push(QUIET, (QUIET, 5), 10), Admission::Refused((QUIET, 5)));
    // A third one is entitled to a third, and takes it from whoever has most.
    for number in 0..3 {
        assert!(matches!(lanes.push(THIRD, (THIRD, number), 10), Admission::InPlaceOf(_)));
    }
    assert_eq!(lanes.push(THIRD, (THIRD, 3), 10), Admission::Refused((THIRD, 3)));
    assert_eq!(lanes.len(), 10);
    let mut counts = [0; 3];
    for (namespace, _) in pop_all(&mut lanes, 10) {
        counts[namespace.0 as usize - 1] += 1;
    }
    assert_eq!(counts.iter().sum::<i32>(), 10);
    assert!(counts.iter().all(|count| *count >= 3), "{counts:?}");
}

#[test]
fn a_namespace_is_served_by_one_service_at_a_time_with_all_its_calls() {
    let mut lanes = lanes(&[(LOUD, 3), (QUIET, 2)]);
    lanes.move_to(Service::Express, QUIET);
    lanes.push(QUIET, (QUIET, 2), usize::MAX);
    assert_eq!((lanes.waiting_for(Service::Ordinary), lanes.waiting_for(Service::Express)), (3, 3));
    assert_eq!(lanes.pop(Service::Express, 1), Some((QUIET, 0)));
    assert_eq!(lanes.pop(Service::Ordinary, 1), Some((LOUD, 0)));
    lanes.move_to(Service::Ordinary, QUIET);
    assert!(lanes.peek(Service::Express).is_none() && lanes.express().is_empty());
    assert_eq!(pop_all(&mut lanes, 9).len(), 4);
    // The service is that of the namespace, also while it has no calls.
    lanes.move_to(Service::Express, QUIET);
    lanes.push(QUIET, (QUIET, 3), usize::MAX);
    assert_eq!((lanes.waiting_for(Service::Ordinary), lanes.waiting_for(Service::Express)), (0, 1));
}
