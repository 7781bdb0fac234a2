//! The rules of the waiting room, one by one. [`super::model`] tries them all at once.

use futures_util::FutureExt;

use super::*;

fn hub() -> Arc<Hub> {
    Arc::new(Hub::new(100))
}

fn queues(names: &[&str]) -> Queues {
    names.iter().map(ToString::to_string).collect()
}

fn enter(hub: &Arc<Hub>, names: &[&str]) -> Waiter {
    hub.enter(queues(names), 1).unwrap()
}

/// A worker that has looked, found nothing, and sleeps.
fn sleeper(hub: &Arc<Hub>, names: &[&str]) -> Waiter {
    let waiter = enter(hub, names);
    scan(hub, &waiter, names).finish(&ScanResult::default());
    waiter
}

fn scan<'a>(hub: &'a Hub, waiter: &Waiter, names: &[&str]) -> ClaimScan<'a> {
    hub.begin_scan(queues(names), vec![waiter.number()])
}

fn found(left: &[(&str, usize)]) -> ScanResult {
    ScanResult { found: true, left: left.iter().map(|(queue, entries)| ((*queue).to_owned(), *entries)).collect() }
}

fn is_woken(waiter: &Waiter) -> bool {
    waiter.woken().now_or_never().is_some()
}

#[test]
fn a_notice_goes_to_the_one_that_has_waited_longest() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a", "b"]), sleeper(&hub, &["b"]));
    hub.notify(&queues(&["b"]));
    assert!(is_woken(&first) && !is_woken(&second));
    hub.notify(&queues(&["b"]));
    assert!(is_woken(&second));
}

#[test]
fn a_notice_about_another_queue_wakes_nobody() {
    let hub = hub();
    let waiter = sleeper(&hub, &["a"]);
    hub.notify(&queues(&["z"]));
    assert!(!is_woken(&waiter));
}

#[test]
fn one_that_wants_several_events_takes_several_notices() {
    let hub = hub();
    let first = hub.enter(queues(&["a"]), 2).unwrap();
    scan(&hub, &first, &["a"]).finish(&ScanResult::default());
    let second = sleeper(&hub, &["a"]);
    hub.notify_many("a", 2);
    assert!(is_woken(&first) && !is_woken(&second));
    hub.notify_many("a", 1);
    assert!(is_woken(&second));
}

#[test]
fn who_comes_to_a_queue_that_nothing_is_known_of_looks() {
    let hub = hub();
    let (first, second) = (enter(&hub, &["a"]), enter(&hub, &["a"]));
    assert!(first.should_look() && second.should_look());
}

#[test]
fn who_comes_to_an_empty_queue_does_not_look() {
    let hub = hub();
    let _first = sleeper(&hub, &["a"]);
    assert!(!enter(&hub, &["a"]).should_look());
    assert!(enter(&hub, &["a", "b"]).should_look(), "nothing is known of b");
}

#[test]
fn after_a_notice_a_queue_is_not_known_to_be_empty() {
    let hub = hub();
    let _first = sleeper(&hub, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(enter(&hub, &["a"]).should_look());
}

#[test]
fn a_notice_goes_to_one_that_sleeps_rather_than_to_one_that_looks() {
    let hub = hub();
    let (first, second) = (enter(&hub, &["a"]), sleeper(&hub, &["a"]));
    let scan = scan(&hub, &first, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&second) && !is_woken(&first));
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&first), "there is nobody else");
    scan.finish(&ScanResult::default());
    assert!(first.should_look());
}

#[test]
fn a_look_says_nothing_of_what_arrived_while_it_was_under_way() {
    let hub = hub();
    let waiter = enter(&hub, &["a"]);
    let scan = scan(&hub, &waiter, &["a"]);
    hub.notify(&queues(&["a"]));
    scan.finish(&ScanResult::default());
    assert!(waiter.should_look() && is_woken(&waiter));
}

#[test]
fn a_look_that_began_before_anybody_waited_says_nothing() {
    let hub = hub();
    let scan = hub.begin_scan(queues(&["a"]), Vec::new());
    let waiter = enter(&hub, &["a"]);
    scan.finish(&ScanResult::default());
    assert!(waiter.should_look());
}

#[test]
fn what_is_known_of_a_queue_is_forgotten_with_its_last_waiter() {
    let hub = hub();
    drop(sleeper(&hub, &["a"]));
    assert!(enter(&hub, &["a"]).should_look());
    assert!(hub.awaited_queues().is_empty());
}

#[test]
fn who_leaves_with_a_notice_hands_it_on() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    drop(first);
    assert!(is_woken(&second));
}

#[test]
fn who_leaves_hands_a_notice_to_a_waiter_of_its_queue() {
    let hub = hub();
    let other = sleeper(&hub, &["b"]);
    let (first, second) = (sleeper(&hub, &["a", "b"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    drop(first);
    assert!(is_woken(&second) && !is_woken(&other));
}

#[test]
fn who_leaves_during_its_look_hands_on_what_the_look_took_up() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    let scan = scan(&hub, &first, &["a"]);
    drop(first);
    assert!(is_woken(&second));
    scan.finish(&ScanResult::default());
}

#[test]
fn a_look_that_fails_gives_back_the_notices() {
    let hub = hub();
    let waiter = sleeper(&hub, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&waiter));
    drop(scan(&hub, &waiter, &["a"]));
    assert!(waiter.should_look());
    assert!(!is_woken(&waiter), "it looks again after its pause, and not at once");
}

#[test]
fn who_leaves_before_a_look_that_others_count_on_wakes_another() {
    let hub = hub();
    let (first, second) = (enter(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&first) && !is_woken(&second));
    let third = enter(&hub, &["a"]);
    assert!(third.should_look());
    drop(third);
    assert!(is_woken(&second));
}

#[test]
fn a_look_that_leaves_something_wakes_as_many_as_nobody_looks_for() {
    let hub = hub();
    let scanning = enter(&hub, &["a"]);
    let (second, third, fourth) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    let scan = scan(&hub, &scanning, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&second), "it has the notice of the one that arrived meanwhile");
    scan.finish(&found(&[("a", 2)]));
    drop(scanning);
    assert!(is_woken(&third) && !is_woken(&fourth), "one of the two is looked for already");
}

#[test]
fn a_look_that_took_another_event_hands_the_notice_on_with_all_its_queues() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["b"]));
    hub.notify(&queues(&["a", "b"]));
    scan(&hub, &first, &["a"]).finish(&found(&[("a", 1)]));
    drop(first);
    assert!(is_woken(&second), "what was left in a is in b, too");
}

#[test]
fn a_look_that_found_nothing_wakes_nobody() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&first));
    scan(&hub, &first, &["a"]).finish(&ScanResult { found: false, left: vec![("a".into(), 5)] });
    assert!(!is_woken(&first) && !is_woken(&second), "others are just taking what is there");
}

#[test]
fn a_full_room_refuses_and_an_empty_one_holds_nothing() {
    let hub = Arc::new(Hub::new(1));
    let waiter = enter(&hub, &["a"]);
    assert!(hub.enter(queues(&["a"]), 1).is_err());
    drop(waiter);
    assert!(hub.is_empty() && hub.awaited_queues().is_empty());
}

#[test]
fn closing_ends_every_wait() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["b"]));
    hub.close();
    assert!(is_woken(&first) && is_woken(&second) && hub.is_closed());
}
