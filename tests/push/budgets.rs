//! What filters may look at: nobody's filter holds up anybody's publishing.

use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::by_hand::{idle, idle_beside};
use super::{id_of, publish, publish_id, rows};
use crate::support::{App, HeldTable, Reply, ledger, until};

/// Where requests would go if any were sent.
const NOWHERE: &str = "http://127.0.0.1:9/";

/// The most that a payload may hold.
fn large_payload() -> Value {
    json!({"s": "ab".repeat(500_000), "n": 1})
}

/// A filter that is true of it, and counts for 99 looks at all of it. Each of them ends at the first
/// byte, so that what is counted costs no time.
fn dear_filter() -> Value {
    json!({"$and": vec![json!({"payload.s": {"$contains": "ab"}}); 99]})
}

/// Takes all places for long matching, so that it is known what does not wait for it.
async fn hold_long_places(app: &App) -> OwnedSemaphorePermit {
    let places = app.engine().matching_slots().long.clone();
    let count = places.available_permits() as u32;
    places.acquire_many_owned(count).await.expect("nobody closes them")
}

/// Publishes beside the test.
fn publish_beside(app: &App, event: Value) -> tokio::task::JoinHandle<Reply> {
    let request = app.client.post(format!("{}/events", app.base)).json(&event);
    tokio::spawn(async move { Reply::of(request.send().await.expect("an answer")).await })
}

async fn until_matched_for_long(app: &App) {
    until("an event takes long to match", async || app.engine().metrics().long_matchings.get() == 1).await;
}

async fn over_budget(app: &App, subscription: &Value) -> Value {
    let path = format!("/subscriptions/{}", id_of(subscription));
    app.get(&path).await.expect(200).json()["filter_over_budget"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_takes_long_to_match_holds_up_no_other() {
    let app = idle(&[]).await;
    for _ in 0..8 {
        app.subscribe(NOWHERE, json!({"event_types": ["large"], "filter": dear_filter()})).await;
    }
    app.subscribe(NOWHERE, json!({"filter": {"payload.n": 1}})).await;
    let held = hold_long_places(&app).await;
    let large = publish_beside(&app, json!({"event_type": "large", "payload": large_payload()}));
    until_matched_for_long(&app).await;
    assert_eq!(publish(&app, "small", json!({"n": 1})).await["enqueued"], 1);
    let not_dear = json!({"event_type": "other", "payload": large_payload()});
    assert_eq!(app.post("/events", &not_dear).await.expect(201).json()["enqueued"], 1, "large, but cheap to match");
    let batch: Vec<Value> = (0..100).map(|n| json!({"event_type": "large", "payload": {"s": "ab", "n": n}})).collect();
    app.post("/events/batch", &json!({ "events": batch })).await.expect(201);
    assert!(!large.is_finished());
    drop(held);
    let stored = large.await.expect("no panic").expect(201).json();
    assert_eq!(stored["enqueued"], 1, "only the cheap filter matches");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_over_its_budget_does_not_match_and_its_owner_can_see_it() {
    let app = idle(&[]).await;
    let dear = app.subscribe(NOWHERE, json!({"filter": dear_filter()})).await;
    let inverted = app.subscribe(NOWHERE, json!({"filter": {"$not": {"$not": dear_filter()}}})).await;
    let cheap = app.subscribe(NOWHERE, json!({"filter": {"payload.s": {"$contains": "aba"}}})).await;
    let never = json!({"events": 0, "last_at": null, "last_event_id": null});
    assert_eq!(over_budget(&app, &dear).await, never);
    assert_eq!(publish(&app, "a", json!({"s": "aba"})).await["enqueued"], 3);
    app.engine().record_filter_overruns().await.expect("it is written");
    assert_eq!(over_budget(&app, &dear).await, never, "a small payload is no trouble");
    let mut last = json!(null);
    for count in 1..=2 {
        last = publish(&app, "a", large_payload()).await;
        assert_eq!(last["enqueued"], 1);
        app.engine().record_filter_overruns().await.expect("it is written");
        let expected = json!({"events": count, "last_at": last["created_at"], "last_event_id": last["id"]});
        assert_eq!(over_budget(&app, &dear).await, expected);
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
    let line = format!("waybill_filters_over_budget_total{{subscription=\"{}\"}} 2\n", dear["id"]);
    assert!(metrics.contains(&line), "{metrics}");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overruns_are_counted_per_event_and_by_all_servers_together() {
    let one = idle(&[]).await;
    let other = idle_beside(&one, &[]).await;
    let dear = one.subscribe(NOWHERE, json!({"filter": dear_filter()})).await;
    let event = json!({"event_type": "a", "payload": large_payload()});
    let batch = json!({"events": vec![event; 3]});
    for app in [&one, &other] {
        app.post("/events/batch", &batch).await.expect(201);
        app.engine().record_filter_overruns().await.expect("it is written");
    }
    let last = one.count("SELECT max(id) FROM waybill.events").await;
    let seen = over_budget(&other, &dear).await;
    assert_eq!((&seen["events"], &seen["last_event_id"]), (&json!(6), &json!(last)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_records_overruns_by_itself_and_logs_them() {
    let app = idle(&[]).await;
    let process = super::in_own_process(&app, &["--dispatch=false"]);
    let dear = app.subscribe(NOWHERE, json!({"filter": dear_filter()})).await;
    let event = json!({"event_type": "a", "payload": large_payload()});
    let stored = process.app.post("/events", &event).await.expect(201).json();
    until("it is recorded", async || over_budget(&app, &dear).await["events"] == 1).await;
    let log = process.stderr();
    let line = log.lines().find(|line| line.contains("exceeded its budget")).expect(&log);
    for part in [format!("subscription_id={}", dear["id"]), format!("event_id={}", stored["id"])] {
        assert!(line.contains(&part), "{part} in {line}");
    }
}

/// The event has been matched and waits for its batch when somebody subscribes.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_event_is_matched_again_if_the_subscriptions_change_before_it_is_stored() {
    let app = idle(&[]).await;
    app.subscribe(NOWHERE, json!({"filter": {"payload.n": 1}})).await;
    let mut held = HeldTable::lock(&app.url, "waybill.events").await;
    let stuck = [publish_beside(&app, json!({"title": "a", "tags": "a"})), {
        held.until_blocked_statements(1).await;
        publish_beside(&app, json!({"title": "b", "tags": "a"}))
    }];
    held.until_blocked_statements(2).await;
    let large = publish_beside(&app, json!({"event_type": "a", "payload": large_payload()}));
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
async fn a_large_event_reaches_whoever_subscribed_on_another_server() {
    let one = idle(&["--notify=false", "--poll-interval-ms=60000"]).await;
    let other = idle_beside(&one, &["--notify=false", "--poll-interval-ms=60000"]).await;
    publish_id(&other, "a").await;
    for known in 1..=3 {
        one.subscribe(NOWHERE, json!({"filter": {"payload.n": 1}})).await;
        assert_eq!(publish(&other, "a", large_payload()).await["enqueued"], known);
    }
    ledger::check(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_finds_no_place_to_be_matched_in_is_told_to_come_back() {
    let app = idle(&[]).await;
    for _ in 0..8 {
        app.subscribe(NOWHERE, json!({"filter": dear_filter()})).await;
    }
    let held = hold_long_places(&app).await;
    let event = json!({"event_type": "a", "payload": large_payload()});
    app.post("/events", &event).await.problem(429, "overloaded");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    assert_eq!(app.engine().metrics().long_matchings.get(), 0);
    drop(held);
    app.post("/events", &event).await.expect(201);
}
