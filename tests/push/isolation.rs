//! Subscribers do not affect each other: slots, rates and deletions.

use serde_json::json;
use waybill::domain::ids::{NamespaceId, SubscriptionId, SubscriptionKey};

use super::by_hand::{dispatch, dispatch_and_finish, dispatcher, idle};
use super::{id_of, publish_id, rows, until_status, with_flags};
use crate::support::locks::HeldRow;
use crate::support::receiver::{Gate, Receiver, Recorded, Reply};
use crate::support::{App, ledger, until, within_patience};

const DONE: &str = "SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED' AND subscription_id IS NOT NULL";

async fn publish_many(app: &App, event_type: &str, count: usize) {
    let events: Vec<_> = (0..count).map(|n| json!({"event_type": event_type, "payload": n})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
}

async fn until_done(app: &App, count: i64) {
    until("all is delivered", async || app.count(DONE).await == count).await;
}

fn sent_to(requests: &[Recorded], path: &str) -> usize {
    requests.iter().filter(|request| request.path == path).count()
}

fn subscription(id: i64) -> SubscriptionKey {
    NamespaceId::DEFAULT.subscription(SubscriptionId(id))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_has_no_more_requests_in_flight_than_its_max_concurrency() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    app.subscribe(&receiver.url("/hook"), json!({"max_concurrency": 3})).await;
    publish_many(&app, "a", 20).await;
    receiver.until_in_flight(3).await;
    gate.open();
    until_done(&app, 20).await;
    assert_eq!((receiver.count(), receiver.most_in_flight()), (20, 3));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_subscriptions_together_have_no_more_requests_in_flight_than_the_server_allows() {
    let (app, receiver) = (with_flags(&["--max-pushes=4"]).await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    for name in ["a", "b", "c"] {
        app.subscribe(&receiver.url(&format!("/{name}")), json!({"event_types": [name]})).await;
        publish_many(&app, name, 6).await;
    }
    receiver.until_in_flight(4).await;
    gate.open();
    until_done(&app, 18).await;
    assert_eq!((receiver.count(), receiver.most_in_flight()), (18, 4));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scarce_slots_are_shared_equally_whatever_the_max_concurrency() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    let mut dispatcher = dispatcher(&app, 6);
    for (name, wanted) in [("a", 1), ("b", 100), ("c", 16)] {
        app.subscribe(&receiver.url(&format!("/{name}")), json!({"event_types": [name], "max_concurrency": wanted}))
            .await;
        publish_many(&app, name, 10).await;
    }
    assert_eq!(dispatch(&app, &mut dispatcher).await, 6);
    let requests = receiver.received(6).await;
    let shares = ["/a", "/b", "/c"].map(|path| sent_to(&requests, path));
    assert!(shares == [1, 2, 3] || shares == [1, 3, 2], "{shares:?}");
    gate.open();
    dispatcher.finish().await;
}

/// With one slot, a subscription with many pushes must not always be first.
#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_that_share_one_slot_take_turns() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 1);
    for name in ["a", "b", "c"] {
        app.subscribe(&receiver.url(&format!("/{name}")), json!({"event_types": [name]})).await;
        publish_many(&app, name, 3).await;
    }
    for _ in 0..9 {
        assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    }
    let paths: Vec<String> = receiver.so_far().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/a", "/b", "/c", "/a", "/b", "/c", "/a", "/b", "/c"]);
    ledger::check(&app).await;
}

/// The subscription that holds most of the slots does not get the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_slot_goes_to_the_subscription_with_the_fewest() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 4);
    let (one, others) = (Gate::closed(), Gate::closed());
    receiver.next(Reply::ok().held_by(&one));
    receiver.always(Reply::ok().held_by(&others));
    for name in ["a", "b"] {
        app.subscribe(&receiver.url(&format!("/{name}")), json!({"event_types": [name], "max_concurrency": 4})).await;
    }
    publish_many(&app, "a", 10).await;
    // The first round leaves half of the slots for the other subscription, which has no pushes yet.
    assert_eq!(dispatch(&app, &mut dispatcher).await + dispatcher.run_once().await.expect("a round"), 4);
    publish_many(&app, "b", 10).await;
    receiver.received(4).await;
    one.open();
    receiver.until_in_flight(3).await;
    until("the slot is free", async || dispatch(&app, &mut dispatcher).await == 1).await;
    assert_eq!(receiver.received(5).await[4].path, "/b");
    others.open();
    dispatcher.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_slot_is_not_lost_to_a_subscription_without_pushes() {
    let (app, receiver) = (idle(&["--poll-interval-ms=60000", "--notify=false"]).await, Receiver::start().await);
    for name in ["empty", "full"] {
        app.subscribe(&receiver.url(&format!("/{name}")), json!({"event_types": [name]})).await;
    }
    let mut dispatcher = dispatcher(&app, 1);
    let id = publish_id(&app, "full").await;
    app.engine().dispatch_signal().signal(None);
    app.engine().dispatch_signal().signaled().await;
    assert_eq!(dispatcher.run_once().await.expect("a round"), 0, "the slot went to the first subscription");
    within_patience(app.engine().dispatch_signal().signaled()).await;
    assert_eq!(dispatcher.run_once().await.expect("a round"), 1);
    dispatcher.finish().await;
    assert_eq!(app.status(id).await, "COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_hang_do_not_delay_others() {
    let (app, hanging, quick) = (App::start().await, Receiver::start().await, Receiver::start().await);
    hanging.always(Reply::never());
    for n in 0..4 {
        app.subscribe(&hanging.url(&format!("/{n}")), json!({"event_types": ["slow"], "timeout_ms": 60_000})).await;
    }
    app.subscribe(&quick.url("/"), json!({"event_types": ["quick"]})).await;
    publish_many(&app, "slow", 30).await;
    hanging.until_in_flight(64).await;
    for _ in 0..10 {
        let id = publish_id(&app, "quick").await;
        until_status(&app, id, "COMPLETED").await;
    }
    assert_eq!((hanging.in_flight(), hanging.count(), quick.count()), (64, 64, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_endpoint_with_a_high_max_concurrency_does_not_delay_others() {
    let app = with_flags(&["--max-pushes=20"]).await;
    let (hanging, lively) = (Receiver::start().await, Receiver::start().await);
    hanging.always(Reply::never());
    app.subscribe(&hanging.url("/"), json!({"event_types": ["hang"], "max_concurrency": 1000})).await;
    app.subscribe(&lively.url("/"), json!({"event_types": ["live"]})).await;
    publish_many(&app, "hang", 50).await;
    hanging.until_in_flight(18).await;
    publish_many(&app, "live", 50).await;
    lively.received(50).await;
    assert_eq!(hanging.in_flight(), 18, "a tenth of the slots is out of its reach");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_kept_and_unused_capacity_is_lost_after_a_second() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    app.subscribe(&receiver.url("/hook"), json!({"rate_per_second": 4})).await;
    publish_many(&app, "a", 1).await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    publish_many(&app, "a", 20).await;
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 3, "the rest of this second");
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 0);
    app.advance(1);
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 4);
    app.advance(60);
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 4, "a minute's worth is not made up for");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_of_less_than_one_per_second_is_kept() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    app.subscribe(&receiver.url("/hook"), json!({"rate_per_second": 0.1})).await;
    publish_many(&app, "a", 5).await;
    let mut sent = Vec::new();
    for _ in 0..21 {
        sent.push(dispatch_and_finish(&app, &mut dispatcher).await);
        app.advance(1);
    }
    let at: Vec<usize> = (0..21).filter(|second| sent[*second] > 0).collect();
    assert_eq!(at, [0, 10, 20], "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_sends_at_the_rate_without_further_signals() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({"rate_per_second": 20})).await;
    publish_many(&app, "a", 40).await;
    let requests = receiver.received(40).await;
    // One second's worth at once, and the others 50 ms apart.
    let span = requests[39].at - requests[0].at;
    assert!(span.as_millis() >= 900, "{span:?}");
    until_done(&app, 40).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_gets_no_further_requests() {
    let (app, receiver, other) = (App::start().await, Receiver::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::status(500).held_by(&gate));
    let fields = json!({"event_types": ["a"], "max_concurrency": 1, "backoff": super::at_once()});
    let subscription = app.subscribe(&receiver.url("/hook"), fields).await;
    app.subscribe(&other.url("/"), json!({"event_types": ["b"]})).await;
    publish_many(&app, "a", 5).await;
    receiver.until_in_flight(1).await;
    let path = format!("/subscriptions/{}", id_of(&subscription));
    app.delete(&path).await.expect(204);
    app.get(&path).await.problem(404, "subscription_not_found");
    publish_many(&app, "a", 1).await;
    gate.open();
    let open = "SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')";
    until("all pushes are cancelled", async || app.count(open).await == 0).await;
    let found =
        rows(&app, "SELECT status, count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL GROUP BY 1")
            .await;
    assert_eq!(found, [json!({"status": "CANCELLED", "count": 5})]);
    let id = publish_id(&app, "b").await;
    until_status(&app, id, "COMPLETED").await;
    assert_eq!(receiver.count(), 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_claimed_before_its_subscription_was_deleted_is_delivered() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let id = publish_id(&app, "a").await;
    receiver.until_in_flight(1).await;
    app.delete(&format!("/subscriptions/{}", id_of(&subscription))).await.expect(204);
    let drained = "SELECT count(*) FROM waybill.subscriptions WHERE drained_at IS NOT NULL";
    until("it is drained", async || app.count(drained).await == 1).await;
    gate.open();
    until_status(&app, id, "COMPLETED").await;
    ledger::check(&app).await;
}

/// Locks the rate of a subscription, as another server that takes from it does.
async fn lock_rate(app: &App, subscription_id: i64) -> HeldRow {
    let row = format!("SELECT 1 FROM waybill.subscription_rates WHERE subscription_id = {subscription_id}");
    HeldRow::with_uncommitted(app, &format!("{row} FOR UPDATE")).await
}

/// Another server takes from the rate between the read of its row and its lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_kept_when_two_servers_take_from_it_at_once() {
    let app = idle(&[]).await;
    let take = async |most| {
        app.engine().take_from_rates(&[(subscription(7), 10.0, most)]).await.expect("a response")[0].granted
    };
    assert_eq!(take(1).await, 1);
    let mut other = lock_rate(&app, 7).await;
    let (granted, ()) = tokio::join!(take(9), async {
        app.until_blocked_calls(1).await;
        other.execute("UPDATE waybill.subscription_rates SET used_until = used_until + interval '0.1 s'").await;
        other.unlock().await;
    });
    assert_eq!(granted, 8, "one was taken meanwhile");
    assert_eq!(take(9).await, 0, "the rate is used up");
}

/// Two servers take from the same rates, each in another order.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_take_from_several_rates_do_not_deadlock() {
    let app = idle(&[]).await;
    app.engine()
        .take_from_rates(&[(subscription(1), 10.0, 1), (subscription(2), 10.0, 1)])
        .await
        .expect("both are known");
    let first = lock_rate(&app, 1).await;
    let (engine, other) = (app.engine().clone(), app.engine().clone());
    let upwards =
        tokio::spawn(
            async move { engine.take_from_rates(&[(subscription(1), 10.0, 1), (subscription(2), 10.0, 1)]).await },
        );
    app.until_blocked_calls(1).await;
    let downwards =
        tokio::spawn(
            async move { other.take_from_rates(&[(subscription(2), 10.0, 1), (subscription(1), 10.0, 1)]).await },
        );
    app.until_blocked_calls(2).await;
    first.unlock().await;
    for taken in [upwards, downwards] {
        assert_eq!(taken.await.expect("no panic").expect("a grant").len(), 2);
    }
}
