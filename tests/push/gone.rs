//! 410: a receiver wants no more requests.

use serde_json::json;

use super::by_hand::{dispatch_and_finish, dispatcher, idle};
use super::{claims, dead_letter, id_of, publish, publish_id, until_status};
use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::{App, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_410_disables_the_subscription_until_it_is_enabled_again() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let mut dispatcher = dispatcher(&app, 100);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"max_concurrency": 1})).await;
    let path = format!("/subscriptions/{}", id_of(&subscription));
    receiver.next(Reply::gone());
    let (given_up, parked) = (publish_id(&app, "a").await, publish_id(&app, "a").await);
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    assert_eq!(app.status(given_up).await, "FAILED");
    assert_eq!(dead_letter(&app, given_up).await["reason"], "terminal");
    let known = app.get(&path).await.expect(200).json();
    assert_eq!((&known["is_active"], &known["inactive_reason"]), (&json!(false), &json!("gone")));
    assert_eq!(known["version"], 2);

    assert_eq!(publish(&app, "a", json!(1)).await["enqueued"], 0, "it gets nothing new");
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 0);
    assert_eq!((claims(&app, parked).await, app.status(parked).await.as_str()), (0, "PENDING"));

    let known = app.patch(&path, &json!({"is_active": true})).await.expect(200).json();
    assert_eq!((&known["is_active"], &known["inactive_reason"]), (&json!(true), &json!(null)));
    assert_eq!(dispatch_and_finish(&app, &mut dispatcher).await, 1);
    assert_eq!(app.status(parked).await, "COMPLETED");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_to_disabling_events_are_notified_of_a_410() {
    let (app, receiver, watching) = (App::start().await, Receiver::start().await, Receiver::start().await);
    receiver.always(Reply::gone());
    // 410 is final whatever `retry_on` lists.
    let fields = json!({"event_types": ["a"], "retry_on": ["410", "4xx"]});
    let subscription = app.subscribe(&receiver.url("/hook"), fields).await;
    app.subscribe(&watching.url("/"), json!({"event_types": ["waybill.subscription.deactivated"]})).await;
    let id = publish_id(&app, "a").await;
    let notification = watching.received(1).await.remove(0);
    let url = receiver.url("/hook");
    assert_eq!(
        notification.json(),
        json!({"subscription_id": id_of(&subscription), "name": null, "url": url, "reason": "gone"})
    );
    until_status(&app, id, "FAILED").await;
    let open = "SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')";
    until("everything is done", async || app.count(open).await == 0).await;
    assert_eq!(receiver.count(), 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_sends_parked_pushes_when_the_subscription_is_enabled_again() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"backoff": super::at_once()})).await;
    let path = format!("/subscriptions/{}", id_of(&subscription));
    let gate = Gate::closed();
    receiver.next(Reply::status(500).held_by(&gate));
    let id = publish_id(&app, "a").await;
    receiver.until_in_flight(1).await;
    app.patch(&path, &json!({"is_active": false})).await.expect(200);
    gate.open();
    super::attempt(&app, id, 1).await;
    assert_eq!(app.status(id).await, "PENDING");
    assert_eq!(receiver.count(), 1);
    app.patch(&path, &json!({"is_active": true})).await.expect(200);
    until_status(&app, id, "COMPLETED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_410_of_an_earlier_url_does_not_disable_the_subscription() {
    let (app, left, present) = (App::start().await, Receiver::start().await, Receiver::start().await);
    let gate = Gate::closed();
    left.next(Reply::gone().held_by(&gate));
    let subscription = app.subscribe(&left.url("/"), json!({})).await;
    let path = format!("/subscriptions/{}", id_of(&subscription));
    let id = publish_id(&app, "a").await;
    left.until_in_flight(1).await;
    app.patch(&path, &json!({"url": present.url("/")})).await.expect(200);
    gate.open();
    until_status(&app, id, "FAILED").await;
    assert_eq!(app.get(&path).await.expect(200).json()["is_active"], true);
    let id = publish_id(&app, "a").await;
    until_status(&app, id, "COMPLETED").await;
    ledger::check(&app).await;
}
