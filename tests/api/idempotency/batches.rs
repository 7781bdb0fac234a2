use serde_json::{Value, json};

use super::{events, job, publish_with};
use crate::support::receiver::Receiver;
use crate::support::{App, ledger, until};

async fn publish_items(app: &App, items: &[Value]) -> Vec<Value> {
    let reply = app.post("/events/batch", &json!({"events": items})).await.expect(201).json();
    reply["events"].as_array().expect("events").clone()
}

fn ids(receipts: &[Value]) -> Vec<i64> {
    receipts.iter().map(|receipt| receipt["id"].as_i64().expect("an id")).collect()
}

fn repeated(receipts: &[Value]) -> Vec<bool> {
    receipts.iter().map(|receipt| receipt["repeated"].as_bool().expect("a boolean")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_items_say_so_and_the_rest_is_stored() {
    let app = App::start().await;
    let first = publish_items(&app, &[job("k1"), json!({"title": "plain", "tags": "a"}), job("k2")]).await;
    let again = publish_items(&app, &[job("k3"), job("k2"), json!({"title": "plain", "tags": "a"}), job("k1")]).await;
    assert_eq!(repeated(&first), [false; 3]);
    assert_eq!(repeated(&again), [false, true, false, true]);
    assert_eq!((ids(&again)[1], ids(&again)[3]), (ids(&first)[2], ids(&first)[0]));
    assert_eq!(events(&app).await, 5);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_item_has_its_present_state() {
    let app = App::start().await;
    let first = publish_items(&app, &[job("k1"), job("k2")]).await;
    app.claim("a", "w:1").await.expect("the first");
    let again = publish_items(&app, &[job("k1"), job("k2")]).await;
    assert_eq!((&again[0]["status"], &again[1]["status"]), (&json!("PROCESSING"), &json!("PENDING")));
    assert_eq!((ids(&again), &again[0]["created_at"]), (ids(&first), &first[0]["created_at"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_twice_in_a_batch_is_one_event() {
    let app = App::start().await;
    let receipts = publish_items(&app, &[job("k"), job("k"), job("l"), job("k")]).await;
    assert_eq!(repeated(&receipts), [false, true, false, true]);
    let got = ids(&receipts);
    assert_eq!([got[1], got[3]], [got[0]; 2]);
    assert_eq!(events(&app).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_batch_is_stored_if_a_key_was_used_with_another_content() {
    let app = App::start().await;
    app.publish(job("k")).await;
    let other = json!({"title": "another", "tags": "a", "idempotency_key": "k"});
    let batch = |items: &[&Value]| json!({"events": items});
    let problem =
        app.post("/events/batch", &batch(&[&job("new"), &other])).await.problem(422, "idempotency_key_reused");
    assert!(problem["detail"].as_str().expect("a detail").contains("events[1]"), "{problem}");
    let twice = json!({"title": "another", "tags": "a", "idempotency_key": "new"});
    let problem =
        app.post("/events/batch", &batch(&[&job("new"), &twice])).await.problem(422, "idempotency_key_reused");
    assert!(problem["detail"].as_str().expect("a detail").contains("events[1]"), "{problem}");
    assert_eq!(events(&app).await, 1);
    // The key of the batch that was refused is free.
    app.post("/events", &job("new")).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_key_is_named_by_its_place_in_the_request_behind_a_key_that_comes_twice() {
    let app = App::start().await;
    app.publish(job("used")).await;
    let other = json!({"title": "another", "tags": "a", "idempotency_key": "used"});
    let batch = json!({"events": [job("k"), job("k"), other, job("l")]});
    let problem = app.post("/events/batch", &batch).await.problem(422, "idempotency_key_reused");
    assert!(problem["detail"].as_str().expect("a detail").contains("events[2]"), "{problem}");
    // The one that is refused comes twice itself: the first is named.
    let batch = json!({"events": [job("k"), job("k"), other, other]});
    let problem = app.post("/events/batch", &batch).await.problem(422, "idempotency_key_reused");
    assert!(problem["detail"].as_str().expect("a detail").contains("events[2]"), "{problem}");
    assert_eq!(events(&app).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_events_are_named_by_their_places_in_the_request_if_keys_come_twice() {
    let app = App::start().await;
    let schema = json!({"type": "object", "required": ["id"]});
    app.put("/event-types/order.paid", &json!({"schema": schema})).await.expect(201);
    let paid =
        |key: &str, payload: Value| json!({"event_type": "order.paid", "payload": payload, "idempotency_key": key});
    let good = || paid("k", json!({"id": 1}));
    let bad = || paid("bad", json!({}));
    let items = [good(), good(), bad(), good(), bad()];
    let reply = app.post("/events/batch", &json!({"events": items})).await;
    reply.names(&["events[2].payload.id", "events[4].payload.id"]);
    assert_eq!(events(&app).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_takes_no_key_from_a_header() {
    let app = App::start().await;
    let request = app.client.post(format!("{}/events/batch", app.base)).header("Idempotency-Key", "k");
    let reply = request.json(&json!({"events": [job("a")]})).send().await.expect("a response");
    crate::support::Reply::of(reply).await.names(&["Idempotency-Key"]);
    publish_with(&app, "Idempotency-Key", "k", &json!({"title": "a", "tags": "a"})).await.expect(201);
}

/// Each push must go to the event that it was matched for.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_of_the_right_events_if_every_second_item_is_a_duplicate() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let odd = json!({"filter": {"payload.parity": "odd"}});
    app.subscribe(&receiver.url("/odd"), odd).await;
    app.subscribe(&receiver.url("/all"), json!({})).await;
    let item = |n: i64| {
        let parity = if n % 4 < 2 { "even" } else { "odd" };
        json!({"event_type": "counted", "payload": {"n": n, "parity": parity}, "idempotency_key": format!("k{n}")})
    };
    let half: Vec<Value> = (0..40).filter(|n| n % 2 == 0).map(item).collect();
    publish_items(&app, &half).await;
    let receipts = publish_items(&app, &(0..40).map(item).collect::<Vec<_>>()).await;
    assert_eq!(repeated(&receipts), (0..40).map(|n| n % 2 == 0).collect::<Vec<_>>());
    until("all are pushed", async || {
        app.count("SELECT count(*) FROM waybill.deliveries WHERE status <> 'COMPLETED'").await == 0
    })
    .await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL").await, 60);
    let mismatched = "SELECT count(*) FROM waybill.deliveries d JOIN waybill.events e ON e.id = d.event_id \
                      JOIN waybill.subscriptions s ON s.id = d.subscription_id \
                      WHERE s.url LIKE '%/odd' AND e.payload->>'parity' <> 'odd'";
    assert_eq!(app.count(mismatched).await, 0);
    ledger::check(&app).await;
}
