//! The rules of the hub, one test each. [`super::model`] checks them together.

use futures_util::FutureExt;

use super::*;
use crate::domain::ids::NamespaceId;

fn hub() -> Arc<Hub> {
    Arc::new(Hub::new(100))
}

fn queue(name: &str) -> QueueKey {
    QueueKey::of_tag(NamespaceId::DEFAULT, name)
}

fn queues(names: &[&str]) -> Queues {
    names.iter().map(|name| queue(name)).collect()
}

fn enter(hub: &Arc<Hub>, names: &[&str]) -> Waiter {
    hub.enter(queues(names), 1).unwrap()
}

/// Returns a worker that has scanned, found nothing, and sleeps.
fn sleeper(hub: &Arc<Hub>, names: &[&str]) -> Waiter {
    let waiter = enter(hub, names);
    scan(hub, &waiter, names).finish(&ScanResult::default());
    waiter
}

fn scan<'a>(hub: &'a Hub, waiter: &Waiter, names: &[&str]) -> ClaimScan<'a> {
    hub.begin_scan(queues(names), vec![waiter.number()])
}

fn found(left: &[(&str, usize)]) -> ScanResult {
    ScanResult { found: true, left: left.iter().map(|(queue, entries)| (self::queue(queue), *entries)).collect() }
}

fn is_woken(waiter: &Waiter) -> bool {
    waiter.woken().now_or_never().is_some()
}

#[test]
fn a_notice_goes_to_the_oldest_waiter() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a", "b"]), sleeper(&hub, &["b"]));
    hub.notify(&queues(&["b"]));
    assert!(is_woken(&first) && !is_woken(&second));
    hub.notify(&queues(&["b"]));
    assert!(is_woken(&second));
}

#[test]
fn a_notice_about_the_same_queue_of_another_namespace_wakes_no_waiter() {
    let hub = hub();
    let waiter = sleeper(&hub, &["a"]);
    let other: Queues = [QueueKey::of_tag(NamespaceId(2), "a")].into();
    hub.notify(&other);
    hub.notify_many(&other[0], 3);
    assert!(!is_woken(&waiter) && hub.are_known_empty(&queues(&["a"])));
}

#[test]
fn a_notice_about_another_queue_wakes_no_waiter() {
    let hub = hub();
    let waiter = sleeper(&hub, &["a"]);
    hub.notify(&queues(&["z"]));
    assert!(!is_woken(&waiter));
}

#[test]
fn a_waiter_that_wants_several_events_takes_several_notices() {
    let hub = hub();
    let first = hub.enter(queues(&["a"]), 2).unwrap();
    scan(&hub, &first, &["a"]).finish(&ScanResult::default());
    let second = sleeper(&hub, &["a"]);
    hub.notify_many(&queue("a"), 2);
    assert!(is_woken(&first) && !is_woken(&second));
    hub.notify_many(&queue("a"), 1);
    assert!(is_woken(&second));
}

#[test]
fn a_waiter_of_an_unknown_queue_scans() {
    let hub = hub();
    let (first, second) = (enter(&hub, &["a"]), enter(&hub, &["a"]));
    assert!(first.should_scan() && second.should_scan());
}

#[test]
fn a_waiter_of_an_empty_queue_does_not_scan() {
    let hub = hub();
    let _first = sleeper(&hub, &["a"]);
    assert!(!enter(&hub, &["a"]).should_scan());
    assert!(enter(&hub, &["a", "b"]).should_scan(), "it is unknown whether b is empty");
}

#[test]
fn after_a_notice_a_queue_is_not_known_to_be_empty() {
    let hub = hub();
    let _first = sleeper(&hub, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(enter(&hub, &["a"]).should_scan());
}

#[test]
fn a_sleeping_waiter_gets_a_notice_before_a_scanning_one() {
    let hub = hub();
    let (first, second) = (enter(&hub, &["a"]), sleeper(&hub, &["a"]));
    let scan = scan(&hub, &first, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&second) && !is_woken(&first));
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&first), "there is no other waiter");
    scan.finish(&ScanResult::default());
    assert!(first.should_scan());
}

#[test]
fn a_scan_does_not_cover_what_arrived_during_it() {
    let hub = hub();
    let waiter = enter(&hub, &["a"]);
    let scan = scan(&hub, &waiter, &["a"]);
    hub.notify(&queues(&["a"]));
    scan.finish(&ScanResult::default());
    assert!(waiter.should_scan() && is_woken(&waiter));
}

#[test]
fn a_scan_that_began_before_the_first_waiter_does_not_count() {
    let hub = hub();
    let scan = hub.begin_scan(queues(&["a"]), Vec::new());
    let waiter = enter(&hub, &["a"]);
    scan.finish(&ScanResult::default());
    assert!(waiter.should_scan());
}

#[test]
fn knowledge_about_a_queue_is_dropped_with_its_last_waiter() {
    let hub = hub();
    drop(sleeper(&hub, &["a"]));
    assert!(enter(&hub, &["a"]).should_scan());
    assert!(hub.awaited_queues().is_empty());
}

#[test]
fn a_waiter_that_leaves_passes_its_notice_on() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    drop(first);
    assert!(is_woken(&second));
}

#[test]
fn a_notice_is_passed_on_to_a_waiter_of_its_queue() {
    let hub = hub();
    let other = sleeper(&hub, &["b"]);
    let (first, second) = (sleeper(&hub, &["a", "b"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    drop(first);
    assert!(is_woken(&second) && !is_woken(&other));
}

#[test]
fn a_waiter_that_leaves_during_its_scan_passes_on_the_notices_of_the_scan() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    let scan = scan(&hub, &first, &["a"]);
    drop(first);
    assert!(is_woken(&second));
    scan.finish(&ScanResult::default());
}

#[test]
fn a_scan_that_fails_gives_back_the_notices() {
    let hub = hub();
    let waiter = sleeper(&hub, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&waiter));
    drop(scan(&hub, &waiter, &["a"]));
    assert!(waiter.should_scan());
    assert!(!is_woken(&waiter), "it scans again after its pause, and not at once");
}

#[test]
fn a_waiter_that_leaves_before_its_scan_wakes_another_waiter() {
    let hub = hub();
    let (first, second) = (enter(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&first) && !is_woken(&second));
    let third = enter(&hub, &["a"]);
    assert!(third.should_scan());
    drop(third);
    assert!(is_woken(&second));
}

#[test]
fn a_scan_that_leaves_entries_wakes_one_waiter_for_each_entry_without_a_scan() {
    let hub = hub();
    let scanning = enter(&hub, &["a"]);
    let (second, third, fourth) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    let scan = scan(&hub, &scanning, &["a"]);
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&second), "it has the notice of the event that arrived meanwhile");
    scan.finish(&found(&[("a", 2)]));
    drop(scanning);
    assert!(is_woken(&third) && !is_woken(&fourth), "a scan for one of the two is already due");
}

#[test]
fn a_scan_that_claimed_another_event_passes_the_notice_on_with_all_its_queues() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["b"]));
    hub.notify(&queues(&["a", "b"]));
    scan(&hub, &first, &["a"]).finish(&found(&[("a", 1)]));
    drop(first);
    assert!(is_woken(&second), "the entry that was left in a is also in b");
}

#[test]
fn a_scan_that_found_nothing_wakes_no_waiter() {
    let hub = hub();
    let (first, second) = (sleeper(&hub, &["a"]), sleeper(&hub, &["a"]));
    hub.notify(&queues(&["a"]));
    assert!(is_woken(&first));
    scan(&hub, &first, &["a"]).finish(&ScanResult { found: false, left: vec![(queue("a"), 5)] });
    assert!(!is_woken(&first) && !is_woken(&second), "other scans are claiming the entries");
}

#[test]
fn a_full_hub_refuses_waiters_and_an_empty_one_keeps_no_queues() {
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
