//! Budgets of filters: no subscriber's filter delays other publishers.

use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::by_hand::{idle, second_idle_server};
use super::{id_of, publish, publish_id, rows};
use crate::support::{App, HeldTable, Reply, ledger, until};

/// A URL to which nothing is sent in these tests.
const NOWHERE: &str = "http://127.0.0.1:9/";

/// A payload of the maximum size.
fn large_payload() -> Value {
    json!({"s": "ab".repeat(500_000), "n": 1})
}

/// A filter that matches the large payload and is charged for reading all of it 99 times. Each
/// comparison ends at the first byte, so the charge takes no time.
fn expensive_filter() -> Value {
    json!({"$and": vec![json!({"payload.s": {"$contains": "ab"}}); 99]})
}

/// Takes all slots for long matching, so that a test sees what does not need one.
async fn hold_long_matching_slots(app: &App) -> OwnedSemaphorePermit {
    let slots = app.engine().matching_slots().long.clone();
    let count = slots.available_permits() as u32;
    slots.acquire_many_owned(count).await.expect("the semaphore is never closed")
}

/// Publishes in the background.
fn publish_in_background(app: &App, event: Value) -> tokio::task::JoinHandle<Reply> {
    let request = app.client.post(format!("{}/events", app.base)).json(&event);
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

async fn until_in_long_matching(app: &App) {
    until("an event takes long to match", async || app.engine().metrics().long_matchings.get() == 1).await;
}

async fn over_budget(app: &App, subscription: &Value) -> Value {
    let path = format!("/subscriptions/{}", id_of(subscription));
    app.get(&path).await.expect(200).json()["filter_over_budget"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_takes_long_to_match_delays_no_other() {
    let app = idle(&[]).await;
    for _ in 0..8 {
        app.subscribe(NOWHERE, json!({"event_types": ["large"], "filter": expensive_filter()})).await;
    }
    app.subscribe(NOWHERE, json!({"filter": {"payload.n": 1}})).await;
    let held = hold_long_matching_slots(&app).await;
    let large = publish_in_background(&app, json!({"event_type": "large", "payload": large_payload()}));
    until_in_long_matching(&app).await;
    assert_eq!(publish(&app, "small", json!({"n": 1})).await["enqueued"], 1);
    let not_expensive = json!({"event_type": "other", "payload": large_payload()});
    assert_eq!(
        app.post("/events", &not_expensive).await.expect(201).json()["enqueued"],
        1,
        "large, but cheap to match"
    );
    let batch: Vec<Value> = (0..100).map(|n| json!({"event_type": "large", "payload": {"s": "ab", "n": n}})).collect();
    app.post("/events/batch", &json!({ "events": batch })).await.expect(201);
    assert!(!large.is_finished());
    drop(held);
    let stored = large.await.expect("no panic").expect(201).json();
    assert_eq!(stored["enqueued"], 1, "only the cheap filter matches");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_over_its_budget_does_not_match_and_the_subscription_shows_it() {
    let app = idle(&[]).await;
    let expensive = app.subscribe(NOWHERE, json!({"filter": expensive_filter()})).await;
    let inverted = app.subscribe(NOWHERE, json!({"filter": {"$not": {"$not": expensive_filter()}}})).await;
    let cheap = app.subscribe(NOWHERE, json!({"filter": {"payload.s": {"$contains": "aba"}}})).await;
    let never = json!({"events": 0, "last_at": null, "last_event_id": null});
    assert_eq!(over_budget(&app, &expensive).await, never);
    assert_eq!(publish(&app, "a", json!({"s": "aba"})).await["enqueued"], 3);
    app.engine().record_filter_overruns().await.expect("it is written");
    assert_eq!(over_budget(&app, &expensive).await, never, "a small payload is no trouble");
    let mut last = json!(null);
    for count in 1..=2 {
        last = publish(&app, "a", large_payload()).await;
        assert_eq!(last["enqueued"], 1);
        app.engine().record_filter_overruns().await.expect("it is written");
        let expected = json!({"events": count, "last_at": last["created_at"], "last_event_id": last["id"]});
        assert_eq!(over_budget(&app, &expensive).await, expected);
    }
    assert_eq!(over_budget(&app, &inverted).await["events"], 2);
    assert_eq!(over_budget(&app, &cheap).await, never);
    let got = rows(
        &app,
        &format!("SELECT subscription_id FROM waybill.deliveries WHERE event_id = {} AND id <> event_id", id_of(&last)),
    )
    .await;
    assert_eq!(got, [json!({"subscription_id": cheap["id"]})]);
    let listed = app.get("/subscriptions").await.expect(200).json();
    assert_eq!(listed["subscriptions"][0]["filter_over_budget"]["events"], 2);
    let metrics = app.get("/metrics").await.expect(200).text;
    let line = format!("waybill_filters_over_budget_total{{subscription=\"{}\"}} 2\n", expensive["id"]);
    assert!(metrics.contains(&line), "{metrics}");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_overruns_are_counted_once_per_event_across_all_servers() {
    let one = idle(&[]).await;
    let other = second_idle_server(&one, &[]).await;
    let expensive = one.subscribe(NOWHERE, json!({"filter": expensive_filter()})).await;
    let event = json!({"event_type": "a", "payload": large_payload()});
    let batch = json!({"events": vec![event; 3]});
    for app in [&one, &other] {
        app.post("/events/batch", &batch).await.expect(201);
        app.engine().record_filter_overruns().await.expect("it is written");
    }
    let last = one.count("SELECT max(id) FROM waybill.events").await;
    let seen = over_budget(&other, &expensive).await;
    assert_eq!((&seen["events"], &seen["last_event_id"]), (&json!(6), &json!(last)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_records_and_logs_budget_overruns() {
    let app = idle(&[]).await;
    let process = super::in_own_process(&app, &["--dispatch=false"]);
    let expensive = app.subscribe(NOWHERE, json!({"filter": expensive_filter()})).await;
    let event = json!({"event_type": "a", "payload": large_payload()});
    let stored = process.app.post("/events", &event).await.expect(201).json();
    until("it is recorded", async || over_budget(&app, &expensive).await["events"] == 1).await;
    let log = process.stderr();
    let line = log.lines().find(|line| line.contains("exceeded its budget")).expect(&log);
    for part in [format!("subscription_id={}", expensive["id"]), format!("event_id={}", stored["id"])] {
        assert!(line.contains(&part), "{part} in {line}");
    }
}

/// The event is matched and waits for its batch when a subscription is created.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_event_is_matched_again_if_the_subscriptions_change_before_it_is_stored() {
    let app = idle(&[]).await;
    app.subscribe(NOWHERE, json!({"filter": {"payload.n": 1}})).await;
    let mut held = HeldTable::lock(&app.url, "waybill.events").await;
    let stuck = [publish_in_background(&app, json!({"title": "a", "tags": "a"})), {
        held.until_blocked_statements(1).await;
        publish_in_background(&app, json!({"title": "b", "tags": "a"}))
    }];
    held.until_blocked_statements(2).await;
    let large = publish_in_background(&app, json!({"event_type": "a", "payload": large_payload()}));
    until("it waits for its batch", async || app.engine().queued().publish == 1).await;
    app.subscribe(NOWHERE, json!({"filter": {"payload.n": {"$gt": 0}}})).await;
    held.unlock().await;
    for reply in stuck {
        reply.await.expect("no panic").expect(201);
    }
    assert_eq!(large.await.expect("no panic").expect(201).json()["enqueued"], 2);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_event_reaches_a_subscription_made_on_another_server() {
    let one = idle(&["--notify=false", "--poll-interval-ms=60000"]).await;
    let other = second_idle_server(&one, &["--notify=false", "--poll-interval-ms=60000"]).await;
    publish_id(&other, "a").await;
    for known in 1..=3 {
        one.subscribe(NOWHERE, json!({"filter": {"payload.n": 1}})).await;
        assert_eq!(publish(&other, "a", large_payload()).await["enqueued"], known);
    }
    ledger::check(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_without_a_free_matching_slot_is_a_429() {
    let app = idle(&[]).await;
    for _ in 0..8 {
        app.subscribe(NOWHERE, json!({"filter": expensive_filter()})).await;
    }
    let held = hold_long_matching_slots(&app).await;
    let event = json!({"event_type": "a", "payload": large_payload()});
    app.post("/events", &event).await.problem(429, "overloaded");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    assert_eq!(app.engine().metrics().long_matchings.get(), 0);
    drop(held);
    app.post("/events", &event).await.expect(201);
}
