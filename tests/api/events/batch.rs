//! `POST /events/batch`.

use serde_json::{Value, json};

use crate::support::App;

const EVENTS: &str = "SELECT count(*) FROM waybill.events";

fn jobs(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"title": format!("job {n}"), "tags": "bulk"})).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_response_to_a_batch_keeps_the_order_of_its_items() {
    let app = App::start().await;
    let sent = [
        json!({"title": "third by priority", "tags": "bulk", "priority": -5}),
        json!({"event_type": "push.only"}),
        json!({"title": "kept in order", "tags": ["bulk", "other"], "ordering_key": "k", "payload": {"n": 1}}),
        json!({"title": "later", "tags": "bulk", "delay_seconds": 60}),
        json!({"title": "kept in order", "tags": "bulk", "ordering_key": "k"}),
    ];
    let reply = app.post("/events/batch", &json!({"events": sent})).await.expect(201).json();
    let receipts = reply["events"].as_array().expect("events");
    let ids: Vec<i64> = receipts.iter().map(|receipt| receipt["id"].as_i64().expect("an id")).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    for (receipt, sent) in receipts.iter().zip(&sent) {
        let read = app.get(&format!("/events/{}", receipt["id"])).await.expect(200).json();
        let title = sent.get("title").unwrap_or(&sent["event_type"]);
        assert_eq!(&read["title"], title);
        let expected = json!({
            "id": read["id"], "status": read["status"], "created_at": read["created_at"], "enqueued": 0, "repeated": false,
        });
        assert_eq!(receipt, &expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_response_to_a_batch_stays_small_however_large_its_payloads_are() {
    let app = App::start().await;
    let large = "x".repeat(500_000);
    let events: Vec<Value> = (0..30).map(|n| json!({"title": format!("{n}"), "tags": "a", "payload": large})).collect();
    let reply = app.post("/events/batch", &json!({"events": events})).await.expect(201);
    assert!(reply.text.len() < 30 * 150, "{} bytes", reply.text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_batch_are_handed_out_in_their_order() {
    let app = App::start().await;
    let reply = app.post("/events/batch", &json!({"events": jobs(20)})).await.expect(201).json();
    let claimed = app.post("/events/claim", &json!({"tags": ["bulk"], "worker_id": "w:1", "max": 20})).await;
    let claimed = claimed.expect(200).json();
    let ids = |reply: &Value| -> Vec<i64> {
        let events = reply["events"].as_array().expect("events");
        events.iter().map(|event| event["id"].as_i64().expect("an id")).collect()
    };
    assert_eq!(ids(&claimed), ids(&reply));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_invalid_item_refuses_the_batch_and_is_named_by_its_index() {
    let app = App::start().await;
    let mut events = jobs(9);
    events[7] = json!({"title": "a job", "tags": "bulk", "priority": 101});
    app.post("/events/batch", &json!({"events": events})).await.names(&["events[7].priority"]);
    assert_eq!(app.count(EVENTS).await, 0);
    assert!(app.claim("bulk", "w:1").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_item_is_named() {
    let app = App::start().await;
    let events = json!([5, {"title": ""}, null, {"title": "fine", "tags": "a"}, {"tags": "a"}, {"title": "x", "tags": "a", "colour": 1}]);
    let named = ["events[0]", "events[1].title", "events[2]", "events[4].title", "events[5].colour"];
    app.post("/events/batch", &json!({"events": events})).await.names(&named);
    assert_eq!(app.count(EVENTS).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_items_are_accepted_in_one_transaction() {
    let app = App::start().await;
    let reply = app.post("/events/batch", &json!({"events": jobs(1_000)})).await.expect(201).json();
    assert_eq!(reply["events"].as_array().expect("events").len(), 1_000);
    assert_eq!(app.count(EVENTS).await, 1_000);
    for table in ["events", "deliveries", "ready"] {
        let transactions = format!("SELECT count(DISTINCT xmin::text) FROM waybill.{table}");
        assert_eq!(app.count(&transactions).await, 1, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_batch_and_one_of_1001_items_are_refused() {
    let app = App::start().await;
    app.post("/events/batch", &json!({"events": jobs(1_001)})).await.names(&["events"]);
    app.post("/events/batch", &json!({"events": []})).await.names(&["events"]);
    assert_eq!(app.count(EVENTS).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_sixteen_mebibytes_is_accepted_and_a_byte_more_is_not() {
    let app = App::start().await;
    let padded = |length: usize| {
        let body = json!({"events": jobs(1)}).to_string();
        format!("{body}{}", " ".repeat(length - body.len()))
    };
    app.post_text("/events/batch", &padded(16 * 1024 * 1024)).await.expect(201);
    let problem = app.post_text("/events/batch", &padded(16 * 1024 * 1024 + 1)).await.problem(413, "payload_too_large");
    assert_eq!(problem["errors"][0]["field"], "body");
    assert_eq!(app.count(EVENTS).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_too_large_payload_refuses_the_whole_batch_and_is_named_by_its_index() {
    let app = App::start().await;
    let mut events = jobs(3);
    events[1]["payload"] = "x".repeat(1024 * 1024 - 1).into();
    let problem = app.post("/events/batch", &json!({"events": events})).await.problem(413, "payload_too_large");
    assert_eq!(problem["errors"][0]["field"], "events[1].payload");
    assert_eq!(app.count(EVENTS).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_belongs_to_every_event_of_its_batch() {
    let app = App::start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = app.client.post(format!("{}/events/batch", app.base)).header("traceparent", trace);
    let response = request.json(&json!({"events": jobs(2)})).send().await.expect("a response");
    let reply: Value = response.json().await.expect("JSON");
    for receipt in reply["events"].as_array().expect("events") {
        assert_eq!(app.event(receipt["id"].as_i64().expect("an id")).await["traceparent"], trace);
    }
}
