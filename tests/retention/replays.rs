//! Dead letters whose events were removed are replayed from their own copies.

use serde_json::{Value, json};
use waybill::background::retention::events::run_once;
use waybill::background::subscription_drainer;
use waybill::domain::retention::Retention;

use crate::support::receiver::{Receiver, Reply};
use crate::support::records::one_attempt;
use crate::support::retention::DAY;
use crate::support::{App, until};

/// Removes events that finished a day ago. Dead letters stay.
async fn remove_events(app: &App) -> usize {
    app.advance(2 * DAY);
    run_once(app.engine(), Retention::days(1)).await.expect("a round")["events"]
}

async fn with_subscription(fields: Value) -> (App, Receiver, Value) {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), fields).await;
    (app, receiver, subscription)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_after_its_event_was_removed() {
    let (app, receiver, _) = with_subscription(one_attempt()).await;
    receiver.next(Reply::status(500));
    // Spelled in a way that no serialiser would choose.
    let body = r#"{"event_type": "order.paid", "title": "Paid", "description": "d", "labels": {"a": "b"}, "priority": 7,
        "max_retries": 9, "backoff": {"strategy": "fixed", "seconds": 1.5}, "correlation_id": "c",
        "payload": {"z": 1.0,  "a": [ 1e2 ]}}"#;
    let id = app.post_text("/events", body).await.expect(201).json()["id"].as_i64().unwrap();
    let push = app.only_delivery(id).await;
    app.until_delivery(push, "FAILED").await;
    let (event, letter) = (app.event(id).await, app.open_dead_letter(id).await);
    assert_eq!(remove_events(&app).await, 1);
    assert!(!app.has_event(id).await);
    assert_eq!(app.open_dead_letter(id).await, letter, "the dead letter is as it was");

    app.replay(&letter["id"], json!({"reason": "mended"})).await.expect(200);
    let delivery = app.until_delivery(push, "COMPLETED").await;
    assert_eq!((&delivery["event_id"], &delivery["replay_of"]), (&json!(id), &letter["id"]));
    let requests = receiver.received(2).await;
    assert_eq!(requests[1].body, requests[0].body);
    assert_eq!(requests[1].header("webhook-id"), requests[0].header("webhook-id"));
    let mut restored = app.event(id).await;
    let actions: Vec<Value> = restored["logs"].as_array().unwrap().iter().map(|line| line["action"].clone()).collect();
    assert_eq!(actions, ["PICKED", "FAILED", "DEAD_LETTERED", "REPLAYED", "PICKED", "COMPLETED"]);
    assert_eq!(restored["status"], "COMPLETED");
    // A dead letter has no copy of where its event came from.
    for changing in ["logs", "status", "updated_at", "client_address"] {
        restored[changing] = event[changing].clone();
    }
    assert_eq!(restored, event, "all else is as it was");
    app.replay(&letter["id"], json!({})).await.problem(409, "not_replayable");
    assert_eq!(remove_events(&app).await, 1, "it leaves again");
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_event_that_workers_once_handled_follows_its_push() {
    let (app, receiver, _) = with_subscription(one_attempt()).await;
    receiver.next(Reply::status(500));
    let id = app.publish(json!({"title": "t", "tags": "a,b", "event_type": "order.paid"})).await;
    app.claim("a", "w:1").await.expect("an event");
    app.complete(id, "w:1").await.expect(200);
    let push = app.only_delivery(id).await;
    app.until_delivery(push, "FAILED").await;
    let letter = app.open_dead_letter(id).await["id"].clone();
    assert_eq!(remove_events(&app).await, 1);
    receiver.next(Reply::status(500));
    app.replay(&letter, json!({})).await.expect(200);
    until("it has failed again", async || app.event(id).await["status"] == "FAILED").await;
    assert!(app.claim("a", "w:1").await.is_none(), "workers do not get it again");
    let again = app.open_dead_letter(id).await["id"].clone();
    assert_ne!(again, letter);
    app.replay(&again, json!({})).await.expect(200);
    app.until_delivery(push, "COMPLETED").await;
    assert_eq!(app.event(id).await["status"], "COMPLETED");
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_tags").await, 1);
    assert_eq!(remove_events(&app).await, 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_tags").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_replays_of_a_removed_event_one_succeeds() {
    let (app, receiver, _) = with_subscription(one_attempt()).await;
    let id = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let letter = app.open_dead_letter(id).await;
    assert_eq!(remove_events(&app).await, 1);
    let replays = futures_util::future::join_all((0..8).map(|_| app.replay(&letter["id"], json!({})))).await;
    let mut statuses: Vec<u16> = replays.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
    app.until_delivery(letter["delivery_id"].as_i64().unwrap(), "COMPLETED").await;
    assert_eq!(receiver.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pushes_of_one_removed_event_are_replayed_at_once_or_one_after_the_other() {
    let (app, receiver, _) = with_subscription(one_attempt()).await;
    app.subscribe(&receiver.url("/other"), one_attempt()).await;
    for is_concurrent in [true, false] {
        receiver.always(Reply::status(500));
        let id = app.publish_typed("order.paid", json!(1)).await;
        until("both have failed", async || app.event(id).await["status"] == "FAILED").await;
        receiver.always(Reply::ok());
        let letters = app.dead_letters(&format!("event_id={id}&replayed=false")).await;
        assert_eq!(letters.len(), 2);
        assert_eq!(remove_events(&app).await, 1);
        let replay = async |letter: &Value| app.replay(&letter["id"], json!({})).await.expect(200);
        if is_concurrent {
            tokio::join!(replay(&letters[0]), replay(&letters[1]));
        } else {
            replay(&letters[0]).await;
            app.until_delivery(letters[0]["delivery_id"].as_i64().unwrap(), "COMPLETED").await;
            replay(&letters[1]).await;
        }
        for letter in &letters {
            app.until_delivery(letter["delivery_id"].as_i64().unwrap(), "COMPLETED").await;
        }
        assert_eq!(app.event(id).await["status"], "COMPLETED");
        assert_eq!(remove_events(&app).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_push_joins_the_tail_of_its_key() {
    let in_order = json!({"max_attempts": 1, "ordering": "by_key", "ordering_key_path": "customer"});
    let (app, receiver, _) = with_subscription(in_order).await;
    receiver.next(Reply::status(500));
    let event = |n: i64| json!({"event_type": "order.paid", "payload": {"customer": "ada", "n": n}});
    let first = app.publish(event(1)).await;
    until("the first has failed", async || app.event(first).await["status"] == "FAILED").await;
    let letter = app.open_dead_letter(first).await["id"].clone();
    assert_eq!(remove_events(&app).await, 1);
    let gate = crate::support::receiver::Gate::closed();
    receiver.next(Reply::ok().held_by(&gate));
    let second = app.publish(event(2)).await;
    receiver.received(2).await;
    app.replay(&letter, json!({})).await.expect(200);
    assert_eq!(app.count("SELECT count(*) FROM waybill.ready").await, 0, "it waits behind the second");
    gate.open();
    for id in [second, first] {
        until("both are taken", async || app.event(id).await["status"] == "COMPLETED").await;
    }
    let numbers: Vec<Value> = receiver.received(3).await.iter().map(|request| request.json()["n"].clone()).collect();
    assert_eq!(numbers, [1, 2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_restores_what_was_removed_and_skips_what_nobody_can_receive() {
    let (app, receiver, _) = with_subscription(json!({"max_attempts": 1, "event_types": ["order.*"]})).await;
    let other = app.subscribe(&receiver.url("/other"), json!({"max_attempts": 1, "event_types": ["user.*"]})).await;
    let mut orders = Vec::new();
    for n in 0..4 {
        orders.push(app.publish_and_fail(&receiver, "order.paid", json!(n)).await);
    }
    let unwanted = app.publish_and_fail(&receiver, "user.created", json!(1)).await;
    assert_eq!(remove_events(&app).await, 5);
    orders.push(app.publish_and_fail(&receiver, "order.paid", json!("still there")).await);
    app.delete(&format!("/subscriptions/{}", other["id"])).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");
    let order = json!({"filter": {}, "per_second": 1000});
    let started = app.start_operation("/dead-letters/replay", &order).await;
    app.run_steps().await;
    let done = app.operation(&started).await;
    assert_eq!((&done["status"], &done["done"], &done["skipped"]), (&json!("COMPLETED"), &json!(5), &json!(1)));
    for id in orders {
        until("it is taken", async || app.event(id).await["status"] == "COMPLETED").await;
    }
    assert!(!app.has_event(unwanted).await);
    let open = app.open_dead_letter(unwanted).await;
    let problem = app.replay(&open["id"], json!({})).await.problem(409, "not_replayable");
    assert!(problem["detail"].as_str().unwrap().contains("its subscription was deleted"), "{problem}");
    assert_eq!(app.orphans().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_replayed_whether_it_is_removed_before_during_or_after() {
    let (app, receiver, _) = with_subscription(one_attempt()).await;
    let mut letters = Vec::new();
    for n in 0..20 {
        let id = app.publish_and_fail(&receiver, "order.paid", json!(n)).await;
        letters.push(app.open_dead_letter(id).await);
    }
    app.advance(2 * DAY);
    let replaying = async {
        for letter in letters.iter().rev() {
            app.replay(&letter["id"], json!({})).await.expect(200);
        }
    };
    let removing = async {
        for _ in 0..20 {
            run_once(app.engine(), Retention::days(1)).await.expect("a round");
        }
    };
    tokio::join!(replaying, removing);
    for letter in &letters {
        app.until_delivery(letter["delivery_id"].as_i64().unwrap(), "COMPLETED").await;
    }
    assert_eq!(receiver.count(), 40);
    assert_eq!(app.orphans().await, 0);
}
