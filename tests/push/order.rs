//! `ordering: by_key`: events of one key are sent one at a time, in the order of publishing.

use serde_json::{Value, json};

use super::by_hand::{dispatch, dispatch_and_finish, dispatcher, idle};
use super::checker::Checker;
use super::{at_once, claims, dead_letter, end_leases, in_own_process, second_server, until_status, with_flags};
use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::{App, ledger, until};

const BREAKER_NEVER_OPENS: &str = "--breaker-failures=10000";
const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn by_key() -> Value {
    json!({"ordering": "by_key", "backoff": at_once(), "max_attempts": 100})
}

async fn publish(app: &App, key: &str, n: u64) -> i64 {
    app.publish(json!({"event_type": "t", "ordering_key": key, "payload": {"key": key, "n": n}})).await
}

/// Publishes `count` events of each key, alternating between two servers.
async fn publish_all(servers: [&App; 2], count: u64) {
    for n in 1..=count {
        for key in KEYS {
            publish(servers[n as usize % 2], key, n).await;
        }
    }
}

async fn until_all_done(app: &App) {
    let open = "SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')";
    until("all events are finished", async || app.count(open).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stays_in_order_through_random_failures_on_two_servers() {
    for seed in [0x5eed, 0xca11] {
        let (one, receiver) = (with_flags(&[BREAKER_NEVER_OPENS]).await, Receiver::start().await);
        let other = second_server(&one, &[BREAKER_NEVER_OPENS]).await;
        let checker = Checker::of(&receiver, seed);
        one.subscribe(&receiver.url("/"), by_key()).await;
        tokio::join!(publish_all([&one, &other], 12), checker.answer_until(60));
        until_all_done(&one).await;
        checker.assert_in_order();
        assert_eq!((checker.taken(), checker.repeats()), (60, 0));
        ledger::check(&one).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stays_in_order_when_the_server_is_killed_in_the_middle() {
    let (front, receiver) = (with_flags(&["--dispatch=false"]).await, Receiver::start().await);
    let checker = Checker::of(&receiver, 0xdead);
    let mut fields = by_key();
    fields["timeout_ms"] = json!(30_000);
    front.subscribe(&receiver.url("/"), fields).await;
    publish_all([&front, &front], 8).await;
    for killed_after in [8, 24] {
        let server = in_own_process(&front, &[BREAKER_NEVER_OPENS]);
        checker.answer_until(killed_after).await;
        // Each key with events left has one request in flight. Some of these have just been
        // answered, and may or may not be recorded.
        receiver.until_at_least_in_flight(2).await;
        checker.answer_one().await;
        checker.answer_one().await;
        server.kill_9().await;
        receiver.until_in_flight(0).await;
        checker.forget_held();
        end_leases(&front).await;
    }
    let last = second_server(&front, &[BREAKER_NEVER_OPENS]).await;
    checker.answer_until(40).await;
    until_all_done(&last).await;
    checker.assert_in_order();
    ledger::check(&last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn different_keys_do_not_wait_for_each_other() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    app.subscribe(&receiver.url("/"), by_key()).await;
    for n in 1..=2 {
        for key in ["a", "b", "c"] {
            publish(&app, key, n).await;
        }
    }
    receiver.until_in_flight(3).await;
    let first: Vec<Value> = receiver.so_far().iter().map(|request| request.json()["n"].clone()).collect();
    assert_eq!(first, [1, 1, 1]);
    gate.open();
    until_all_done(&app).await;
    assert_eq!((receiver.count(), receiver.most_in_flight()), (6, 3));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_overtakes_another_of_its_key_whatever_its_priority_or_due_time() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    app.subscribe(&receiver.url("/"), by_key()).await;
    let event = |n: u64| json!({"event_type": "t", "ordering_key": "k", "payload": n});
    for (n, more) in [(1, json!({"delay_seconds": 60})), (2, json!({"priority": 10})), (3, json!({}))] {
        let mut event = event(n);
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        app.publish(event).await;
    }
    app.advance_and_promote(59).await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 0);
    app.advance_and_promote(1).await;
    for _ in 0..3 {
        assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    }
    let order: Vec<String> = receiver.so_far().iter().map(|request| request.text().to_owned()).collect();
    assert_eq!(order, ["1", "2", "3"]);
    ledger::check(&app).await;
}

/// Refuses the first event of a key. Returns how many further events of the key are sent then.
async fn behind_a_failure(on_exhausted: &str) -> (App, Receiver, [i64; 3], usize) {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    let mut fields = by_key();
    fields["on_exhausted"] = json!(on_exhausted);
    app.subscribe(&receiver.url("/"), fields).await;
    receiver.next(Reply::status(400));
    let ids = [publish(&app, "k", 1).await, publish(&app, "k", 2).await, publish(&app, "k", 3).await];
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    assert_eq!(dead_letter(&app, ids[0]).await["reason"], "terminal");
    let mut sent = 0;
    for _ in 0..3 {
        sent += dispatch_and_finish(&app, &mut dispatcher).await;
    }
    (app, receiver, ids, sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_behind_a_failure_that_is_skipped_are_sent() {
    let (app, receiver, ids, sent) = behind_a_failure("skip").await;
    assert_eq!((sent, receiver.count()), (2, 3));
    assert_eq!(app.status(ids[2]).await, "COMPLETED");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_behind_a_failure_that_blocks_wait_and_other_keys_do_not() {
    let (app, receiver, ids, sent) = behind_a_failure("block").await;
    assert_eq!((sent, receiver.count()), (0, 1));
    for id in &ids[1..] {
        assert_eq!((app.status(*id).await.as_str(), claims(&app, *id).await), ("PENDING", 0));
    }
    let later = publish(&app, "k", 4).await;
    let elsewhere = publish(&app, "other", 1).await;
    let mut dispatcher = dispatcher(&app, 100);
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    assert_eq!((app.status(later).await.as_str(), app.status(elsewhere).await.as_str()), ("PENDING", "COMPLETED"));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_key_continues_in_order_when_the_failed_push_is_retried() {
    let (app, receiver, ids, _) = behind_a_failure("block").await;
    app.operate_on_delivery(app.only_delivery(ids[0]).await, "retry").await.expect(200);
    let mut dispatcher = dispatcher(&app, 100);
    for _ in 0..3 {
        assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    }
    let order: Vec<Value> = receiver.so_far().iter().map(|request| request.json()["n"].clone()).collect();
    assert_eq!(order, [1, 1, 2, 3]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_read_from_the_payload_and_events_without_one_do_not_wait() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    let mut fields = by_key();
    fields["ordering_key_path"] = json!("user.id");
    app.subscribe(&receiver.url("/"), fields).await;
    let payloads = [
        json!({"user": {"id": 7}, "n": 1}),
        json!({"user": {"id": 7}, "n": 2}),
        json!({"user": {"id": "8"}, "n": 3}),
        json!({"user": {}, "n": 4}),
        json!({"user": {"id": null}, "n": 5}),
    ];
    for payload in payloads {
        // The event's own ordering key is not the configured one.
        app.publish(json!({"event_type": "t", "ordering_key": "own", "payload": payload})).await;
    }
    assert_eq!(dispatch(&app, &mut dispatcher).await, 4);
    let mut first: Vec<u64> =
        receiver.received(4).await.iter().map(|request| request.json()["n"].as_u64().expect("a number")).collect();
    first.sort_unstable();
    assert_eq!(first, [1, 3, 4, 5]);
    gate.open();
    dispatcher.finish().await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_an_ordering_key_do_not_wait() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    app.subscribe(&receiver.url("/"), by_key()).await;
    for n in 0..3 {
        super::publish(&app, "t", json!(n)).await;
    }
    receiver.until_in_flight(3).await;
    gate.open();
    until_all_done(&app).await;
    ledger::check(&app).await;
}

/// A key is ordered separately for each consumer: workers, and every subscription.
#[tokio::test(flavor = "multi_thread")]
async fn one_consumer_of_a_key_does_not_block_another() {
    let (app, quick, stuck) = (App::start().await, Receiver::start().await, Receiver::start().await);
    let gate = Gate::closed();
    stuck.always(Reply::ok().held_by(&gate));
    app.subscribe(&quick.url("/"), by_key()).await;
    app.subscribe(&stuck.url("/"), by_key()).await;
    let mut ids = Vec::new();
    for n in 1..=3 {
        ids.push(app.publish(json!({"event_type": "t", "tags": "w", "ordering_key": "k", "payload": n})).await);
    }
    let order: Vec<String> = quick.received(3).await.iter().map(|request| request.text().to_owned()).collect();
    assert_eq!(order, ["1", "2", "3"]);
    stuck.until_in_flight(1).await;
    assert_eq!(app.claim_one("w", "w:1").await.event_id, ids[0]);
    assert!(app.claim("w", "w:2").await.is_none(), "the key of the workers is separate");
    gate.open();
    for id in ids {
        app.complete(id, "w:1").await.expect(200);
        until_status(&app, id, "COMPLETED").await;
        app.claim("w", "w:1").await;
    }
    until_all_done(&app).await;
    ledger::check(&app).await;
}
