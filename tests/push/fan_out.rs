//! Which subscriptions get an event: all that matched it when it was published, once each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::by_hand::{dispatch, dispatcher, idle, second_idle_server};
use super::{id_of, publish, publish_id, rows, second_server, until_status, with_flags};
use crate::support::locks::HeldRow;
use crate::support::receiver::{Receiver, Reply};
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, database, ledger, until};

/// A URL to which nothing is sent in these tests.
const NOWHERE: &str = "http://127.0.0.1:9/";

/// Returns the names of the subscriptions that get an event.
async fn matched(app: &App, event: Value) -> Vec<String> {
    let reply = app.post("/events", &event).await.expect(201).json();
    let found = rows(
        app,
        &format!(
            "SELECT s.spec->>'name' AS name FROM waybill.deliveries d JOIN waybill.subscriptions s ON s.id = d.subscription_id \
             WHERE d.event_id = {} ORDER BY s.id",
            id_of(&reply)
        ),
    )
    .await;
    assert_eq!(reply["enqueued"], found.len());
    found.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_goes_to_subscriptions_whose_every_condition_it_meets() {
    let app = idle(&[]).await;
    for fields in [
        json!({"name": "all"}),
        json!({"name": "star", "event_types": ["*"]}),
        json!({"name": "exact", "event_types": ["order.paid"]}),
        json!({"name": "prefix", "event_types": ["user.*", "order.*"]}),
        json!({"name": "tags", "tags": ["eu", "urgent"]}),
        json!({"name": "labels", "labels": {"tenant": "acme"}}),
        json!({"name": "filter", "filter": {"payload.amount": {"$gt": 100}}}),
        json!({"name": "both", "event_types": ["order.*"], "labels": {"tenant": "acme"}, "filter": {"payload.amount": 5}}),
        json!({"name": "off", "is_active": false}),
    ] {
        app.subscribe(NOWHERE, fields).await;
    }
    let cases = [
        (json!({"event_type": "order.paid"}), vec!["all", "star", "exact", "prefix"]),
        (json!({"event_type": "order.paid.late"}), vec!["all", "star", "prefix"]),
        (json!({"event_type": "orders.paid"}), vec!["all", "star"]),
        (json!({"title": "t", "tags": "urgent,eu,x"}), vec!["all", "star", "tags"]),
        (json!({"event_type": "t", "tags": "eu"}), vec!["all", "star"]),
        (json!({"event_type": "t", "labels": {"tenant": "acme", "b": "c"}}), vec!["all", "star", "labels"]),
        (json!({"event_type": "t", "payload": {"amount": 101}}), vec!["all", "star", "filter"]),
        (json!({"event_type": "t", "payload": {"amount": "101"}}), vec!["all", "star"]),
        (
            json!({"event_type": "order.x", "labels": {"tenant": "acme"}, "payload": {"amount": 5}}),
            vec!["all", "star", "prefix", "labels", "both"],
        ),
    ];
    for (event, names) in cases {
        assert_eq!(matched(&app, event.clone()).await, names, "{event}");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_too_many_pushes_is_refused_and_smaller_ones_are_not() {
    let app = idle(&[]).await;
    for n in 0..21 {
        app.subscribe(NOWHERE, json!({"name": n.to_string()})).await;
    }
    let batch = |count: usize| json!({"events": vec![json!({"event_type": "t"}); count]});
    app.post("/events/batch", &batch(1_000)).await.names(&["events"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    // Together they would be too many for one statement, and go in two.
    let (first, second) = (batch(500), batch(500));
    let (first, second) = tokio::join!(app.post("/events/batch", &first), app.post("/events/batch", &second));
    first.expect(201);
    second.expect(201);
    let pushes = "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL";
    assert_eq!(app.count(pushes).await, 21_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_publish_event_types_of_the_server() {
    let app = App::start().await;
    let forged = json!({"event_type": "waybill.subscription.deactivated"});
    app.post("/events", &forged).await.names(&["event_type"]);
    app.post("/events/batch", &json!({"events": [forged]})).await.names(&["events[0].event_type"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_subscribers_is_completed_at_once() {
    let app = App::start().await;
    app.subscribe(NOWHERE, json!({"event_types": ["other"]})).await;
    let event = publish(&app, "a", json!(1)).await;
    assert_eq!((&event["status"], &event["enqueued"]), (&json!("COMPLETED"), &json!(0)));
    assert_eq!(app.event(id_of(&event)).await["status"], "COMPLETED");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_tags_goes_to_workers_and_subscribers_alike() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/"), json!({})).await;
    let event = app.post("/events", &json!({"event_type": "t", "tags": "work", "payload": 7})).await.expect(201).json();
    let id = id_of(&event);
    assert_eq!(event["enqueued"], 1);
    assert_eq!(receiver.received(1).await[0].text(), "7");
    let pushed = format!(
        "SELECT count(*) FROM waybill.deliveries WHERE event_id = {id} AND subscription_id > 0 AND status = 'COMPLETED'"
    );
    until("it is delivered", async || app.count(&pushed).await == 1).await;
    assert_eq!(app.status(id).await, "PENDING", "a push does not complete the event's own work");
    app.claim_one("work", "w:1").await;
    app.complete(id, "w:1").await.expect(200);
    assert_eq!(app.status(id).await, "COMPLETED");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_an_event_rolls_up_the_outcomes_of_its_pushes() {
    let (app, good, bad) = (App::start().await, Receiver::start().await, Receiver::start().await);
    bad.always(Reply::status(400));
    app.subscribe(&good.url("/"), json!({"event_types": ["a", "b"]})).await;
    app.subscribe(&bad.url("/"), json!({"event_types": ["b"]})).await;
    let (fine, mixed) = (publish_id(&app, "a").await, publish_id(&app, "b").await);
    until_status(&app, fine, "COMPLETED").await;
    until_status(&app, mixed, "FAILED").await;
    ledger::check(&app).await;
}

/// The roll-up row is changed between the read of it and its lock. Completions use one statement,
/// failures the slow path; both are tested.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_an_event_that_end_concurrently_are_all_counted() {
    for (status, expected) in [(200, "COMPLETED"), (400, "FAILED")] {
        let (app, receiver) = (idle(&[]).await, Receiver::start().await);
        receiver.always(Reply::status(status));
        let mut dispatcher = dispatcher(&app, 100);
        for _ in 0..2 {
            app.subscribe(&receiver.url("/"), json!({"event_types": ["a"]})).await;
        }
        app.subscribe(NOWHERE, json!({"event_types": ["a"]})).await;
        let id = publish_id(&app, "a").await;
        let third = format!("SELECT max(id) FROM waybill.deliveries WHERE event_id = {id}");
        let third = app.count(&third).await;
        let mut held = HeldRow::lock(&app, id).await;
        let canceller = async { app.operate_on_delivery(third, "cancel").await.expect(200) };
        let sender = async {
            app.until_blocked_calls(1).await;
            dispatch(&app, &mut dispatcher).await;
            app.until_blocked_calls(2).await;
            held.execute(&format!("UPDATE waybill.deliveries SET updated_at = now() WHERE id = {id}")).await;
            held.unlock().await;
            dispatcher.finish().await;
        };
        tokio::join!(canceller, sender);
        assert_eq!(app.status(id).await, expected);
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_subscriptions_only_those_that_match_cost_time() {
    let app = idle(&[]).await;
    app.subscribe(NOWHERE, json!({"event_types": ["other"]})).await;
    // Copied in the database, because creating them is not what is measured.
    let copies = "INSERT INTO waybill.subscriptions (url, spec) \
                  SELECT url, replace(spec::text, '\"other\"', '\"other.' || n || '\"')::json \
                  FROM waybill.subscriptions, generate_series(1, 996) n";
    database::execute(&app.url, copies).await;
    for _ in 0..3 {
        app.subscribe(NOWHERE, json!({"event_types": ["wanted"]})).await;
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.subscriptions WHERE is_active").await, 1000);
    assert_eq!(publish(&app, "other.500", json!(1)).await["enqueued"], 1);
    let id = publish_id(&app, "wanted").await;
    assert_eq!(
        app.count(&format!("SELECT count(*) FROM waybill.deliveries WHERE event_id = {id} AND id <> {id}")).await,
        3
    );
    assert_eq!(app.count("SELECT count(*) FROM waybill.ready").await, 1 + 3);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_an_old_snapshot_still_reaches_subscriptions_made_on_another_server() {
    let one = idle(&["--notify=false", "--poll-interval-ms=60000"]).await;
    let other = second_idle_server(&one, &["--notify=false", "--poll-interval-ms=60000"]).await;
    assert_eq!(publish(&other, "a", json!(1)).await["enqueued"], 0, "its snapshot is made");
    let mut subscriptions = Vec::new();
    for known in 1..=3 {
        subscriptions.push(id_of(&one.subscribe(NOWHERE, json!({})).await));
        assert_eq!(publish(&other, "a", json!(1)).await["enqueued"], known);
    }
    one.patch(&format!("/subscriptions/{}", subscriptions[0]), &json!({"is_active": false})).await.expect(200);
    assert_eq!(publish(&other, "a", json!(1)).await["enqueued"], 2);
    one.patch(&format!("/subscriptions/{}", subscriptions[1]), &json!({"event_types": ["b"]})).await.expect(200);
    assert_eq!(publish(&other, "a", json!(1)).await["enqueued"], 1);
    one.delete(&format!("/subscriptions/{}", subscriptions[2])).await.expect(204);
    assert_eq!(publish(&other, "a", json!(1)).await["enqueued"], 0);
}

/// Behind a proxy that does not forward NOTIFY, a server that only sends must notice the change on
/// its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_sends_finds_subscriptions_made_on_another_server() {
    let front = with_flags(&["--dispatch=false", "--notify=false"]).await;
    let _sender = second_server(&front, &["--notify=false", "--poll-interval-ms=50"]).await;
    let receiver = Receiver::start().await;
    front.subscribe(&receiver.url("/"), json!({})).await;
    let id = publish_id(&front, "a").await;
    until_status(&front, id, "COMPLETED").await;
    ledger::check(&front).await;
}

/// When one subscription was created and deleted, by a clock that all tasks share.
#[derive(Default)]
struct Lifetime {
    made: (i64, i64),
    ended: Option<(i64, i64)>,
}

/// The change comes first, but is not committed when the event is matched.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_waits_for_a_change_of_a_subscription_is_matched_again() {
    let app = idle(&[]).await;
    let id = app.subscribe(NOWHERE, json!({"event_types": ["a"]})).await["id"].clone();
    let row =
        HeldRow::with_uncommitted(&app, &format!("SELECT 1 FROM waybill.subscriptions WHERE id = {id} FOR UPDATE"))
            .await;
    let in_order = async {
        app.until_blocked_calls(1).await;
        let release = async {
            app.until_blocked_calls(2).await;
            row.unlock().await;
        };
        tokio::join!(publish(&app, "a", json!({})), release).0
    };
    let path = format!("/subscriptions/{id}");
    let change = json!({"event_types": ["b"]});
    let (changed, published) = tokio::join!(app.patch(&path, &change), in_order);
    changed.expect(200);
    assert_eq!(published["enqueued"], 0);
    ledger::check(&app).await;
}

/// The event comes first: it is matched and is being stored when the subscription is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn the_deletion_of_a_subscription_waits_for_an_event_that_is_being_stored() {
    let app = app_that_sends_nothing().await;
    let id = app.subscribe(NOWHERE, json!({"event_types": ["a"]})).await["id"].clone();
    // Another transaction takes the id that the event will get, and rolls back later.
    let next = app.count("SELECT last_value FROM waybill.ids").await + 1;
    let taken = format!(
        "INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, lease_id) \
         VALUES ({next}, {next}, 'COMPLETED', 0, 1, 1)"
    );
    let mut taken = HeldRow::with_uncommitted(&app, &taken).await;
    let in_order = async {
        app.until_blocked_calls(1).await;
        let path = format!("/subscriptions/{id}");
        let release = async {
            app.until_blocked_calls(2).await;
            taken.execute("ROLLBACK").await;
        };
        tokio::join!(app.delete(&path), release).0
    };
    let (published, deleted) = tokio::join!(publish(&app, "a", json!({})), in_order);
    assert_eq!((&published["id"], &published["enqueued"]), (&next.into(), &1.into()));
    deleted.expect(204);
    let cancelled =
        "SELECT count(*) FROM waybill.deliveries WHERE status = 'CANCELLED' AND subscription_id IS NOT NULL";
    until("the push is cancelled", async || app.count(cancelled).await == 1).await;
    ledger::check(&app).await;
}

/// Publishers on two servers, while subscriptions are created and deleted. A subscription that
/// existed before a publish was sent gets the event, one that was deleted before does not, and none
/// gets it twice.
#[tokio::test(flavor = "multi_thread")]
async fn every_event_goes_to_exactly_the_subscriptions_that_existed_when_it_was_published() {
    let one = idle(&[]).await;
    let other = second_idle_server(&one, &[]).await;
    let clock = AtomicI64::new(0);
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let publisher = async |app: &App| {
        let mut published = BTreeMap::new();
        for _ in 0..60 {
            let sent = tick();
            let id = publish_id(app, "a").await;
            published.insert(id, (sent, tick()));
        }
        published
    };
    let subscriber = async |app: &App, ends_by: &str| {
        let mut lives = BTreeMap::new();
        for _ in 0..12 {
            let began = tick();
            let id = id_of(&app.subscribe(NOWHERE, json!({})).await);
            let mut life = Lifetime { made: (began, tick()), ended: None };
            let began = tick();
            let path = format!("/subscriptions/{id}");
            match ends_by {
                "deleting" => drop(app.delete(&path).await.expect(204)),
                "switching off" => drop(app.patch(&path, &json!({"is_active": false})).await.expect(200)),
                _ => drop(app.patch(&path, &json!({"event_types": ["b"]})).await.expect(200)),
            }
            life.ended = Some((began, tick()));
            lives.insert(id, life);
        }
        lives
    };
    let steady = id_of(&one.subscribe(NOWHERE, json!({})).await);
    let (publishers, lives) = tokio::join!(
        join_all([publisher(&one), publisher(&other), publisher(&one), publisher(&other)]),
        join_all([subscriber(&one, "deleting"), subscriber(&other, "switching off"), subscriber(&one, "editing")]),
    );
    let mut lives: BTreeMap<i64, Lifetime> = lives.into_iter().flatten().collect();
    lives.insert(steady, Lifetime { made: (-2, -1), ended: None });
    let found =
        rows(&one, "SELECT event_id, subscription_id FROM waybill.deliveries WHERE subscription_id IS NOT NULL").await;
    let pairs: Vec<(i64, i64)> = found
        .iter()
        .map(|row| (row["event_id"].as_i64().expect("an id"), row["subscription_id"].as_i64().expect("an id")))
        .collect();
    let distinct: BTreeSet<(i64, i64)> = pairs.iter().copied().collect();
    assert_eq!(distinct.len(), pairs.len(), "no subscription gets an event twice");
    let (mut surely_in, mut surely_out) = (0, 0);
    for (event, (sent, answered)) in publishers.into_iter().flatten() {
        for (subscription, life) in &lives {
            let is_in = distinct.contains(&(event, *subscription));
            let was_there = life.made.1 < sent && life.ended.is_none_or(|ended| ended.0 > answered);
            let was_not = life.made.0 > answered || life.ended.is_some_and(|ended| ended.1 < sent);
            assert!(!was_there || is_in, "event {event} missed subscription {subscription}");
            assert!(!was_not || !is_in, "event {event} went to subscription {subscription}, which was not there");
            surely_in += usize::from(was_there);
            surely_out += usize::from(was_not);
        }
    }
    assert!(surely_in >= 240 && surely_out > 1000, "{surely_in} {surely_out}");
    assert!(pairs.len() > 240, "some short-lived subscriptions got events");
}
