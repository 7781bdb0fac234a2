//! `waiting_events` and `stored_bytes`.

use serde_json::json;

use super::{limit, publish, publish_many, refresh, refused, servers, stored};
use crate::support::retention::DAY;
use crate::support::{App, until};

#[tokio::test(flavor = "multi_thread")]
async fn events_that_wait_are_counted_on_all_servers_and_claims_make_room() {
    let [one, other] = servers().await;
    limit(&one, "default", json!({"waiting_events": 4})).await;
    publish_many(&one, 2).await.expect(201);
    refresh([&one, &other]).await;
    publish(&other).await.expect(201);
    other.post("/events", &json!({"title": "later", "tags": "a,b", "delay_seconds": 60})).await.expect(201);
    refused(publish(&other).await, "waiting_events", "namespace");
    refresh([&one, &other]).await;
    for server in [&one, &other] {
        refused(publish(server).await, "waiting_events", "namespace");
        refused(publish_many(server, 1).await, "waiting_events", "namespace");
        // Events without tags wait for no worker.
        server.post("/events", &json!({"event_type": "order.paid"})).await.expect(201);
    }
    one.claim_one("a", "w:1").await;
    refresh([&one, &other]).await;
    refused(publish_many(&other, 2).await, "waiting_events", "namespace");
    publish(&other).await.expect(201);
    refresh([&one, &other]).await;
    refused(publish(&one).await, "waiting_events", "namespace");
    limit(&one, "default", json!({})).await;
    publish(&one).await.expect(201);
    assert_eq!(stored(&one).await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_waiting_event_counts_once() {
    let [app] = servers().await;
    limit(&app, "default", json!({"waiting_events": 100})).await;
    app.publish(json!({"title": "several tags", "tags": "a,b,c"})).await;
    for _ in 0..3 {
        app.publish(json!({"title": "in order", "tags": "a", "ordering_key": "k"})).await;
    }
    app.publish(json!({"title": "later", "tags": "a", "delay_seconds": 60})).await;
    app.publish(json!({"title": "later and in order", "tags": "a", "delay_seconds": 60, "ordering_key": "l"})).await;
    refresh([&app]).await;
    let used = async || app.get("/usage").await.expect(200).json()["namespace"]["waiting_events"]["used"].clone();
    assert_eq!(used().await, json!(6));
    let claim = app.claim_one("a", "w:1").await;
    refresh([&app]).await;
    assert_eq!(used().await, json!(5), "one is in work");
    app.fail(claim.event_id, "w:1").await.expect(200);
    refresh([&app]).await;
    assert_eq!(used().await, json!(6), "it waits for its next attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_are_added_up_on_all_servers_and_events_that_leave_make_room() {
    let [one, other] = servers().await;
    limit(&one, "default", json!({"stored_bytes": 10_000})).await;
    let send = async |server: &App, bytes: usize| {
        let event = json!({"event_type": "order.paid", "payload": "x".repeat(bytes - 2)});
        server.post("/events", &event).await
    };
    send(&one, 6_000).await.expect(201);
    refused(send(&one, 4_001).await, "stored_bytes", "namespace");
    refresh([&one, &other]).await;
    send(&other, 3_000).await.expect(201);
    refused(send(&other, 1_001).await, "stored_bytes", "namespace");
    refresh([&one, &other]).await;
    refused(send(&one, 1_001).await, "stored_bytes", "namespace");
    send(&one, 1_000).await.expect(201);
    publish(&one).await.expect(201);
    let usage = one.get("/usage").await.expect(200).json();
    assert_eq!(usage["namespace"]["stored_bytes"], json!({"limit": 10_000, "used": 10_000}));
    for server in [&one, &other] {
        server.advance(31 * DAY);
    }
    one.remove_old().await;
    until("the events have left", async || {
        one.remove_old().await;
        stored(&one).await <= 1
    })
    .await;
    refresh([&one, &other]).await;
    send(&other, 10_000).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_keep_up_keep_publishers_from_being_refused() {
    let app = App::start().await;
    limit(&app, "default", json!({"waiting_events": 40})).await;
    // More than the limit within one interval, of which never more than a few wait.
    let (mut accepted, mut refusals) = (0, 0);
    while accepted < 200 {
        let reply = publish_many(&app, 5).await;
        if reply.status == 429 {
            refusals += 1;
            refused(reply, "waiting_events", "namespace");
            assert!(refusals < 10_000, "only {accepted} events were accepted");
            continue;
        }
        reply.expect(201);
        accepted += 5;
        app.drain("a", "w:1").await;
    }
}
