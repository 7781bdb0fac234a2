//! Payloads are checked when they are published.

use serde_json::{Value, json};

use super::{ORDER_PAID, declare, needs_id, pay, stored};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_breaks_the_schema_is_refused_with_path_and_rule() {
    let app = App::start().await;
    let schema = json!({
        "type": "object", "required": ["customer"],
        "properties": {
            "customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "maxLength": 5}}},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        },
    });
    declare(&app, schema).await;
    let bad = json!({"customer": {"id": "too long"}, "lines": [{"sku": "a"}, {"sku": 7}]});
    let problem = pay(&app, bad).await.problem(400, "invalid_request");
    let expected = json!([
        {"field": "payload.customer.id", "reason": "does not satisfy maxLength: 5"},
        {"field": "payload.lines[1].sku", "reason": "does not satisfy type: \"string\""},
    ]);
    assert_eq!(problem["errors"], expected);
    assert_eq!(problem["effect"], "none");
    pay(&app, json!({"customer": {}})).await.names(&["payload.customer.id"]);
    pay(&app, json!(null)).await.names(&["payload"]);
    app.post("/events", &json!({"event_type": "order.paid"})).await.names(&["payload"]);
    assert_eq!(stored(&app).await, 0);
    pay(&app, json!({"customer": {"id": "c-7"}, "lines": []})).await.expect(201);
    assert!(app.get("/metrics").await.expect(200).text.contains("waybill_events_rejected_total 4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_payload_is_stored_as_it_was_sent() {
    let app = App::start().await;
    declare(&app, needs_id()).await;
    let text = r#"{ "z":1,"id" : 17,  "price":1.50 }"#;
    let body = format!(r#"{{"event_type": "order.paid", "tags": "a", "payload": {text}}}"#);
    app.post_text("/events", &body).await.expect(201);
    let claimed = app.get("/events/subscribe?tags=a&worker_id=w:1").await.expect(200);
    assert!(claimed.text.contains(text), "{}", claimed.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failing_item_of_a_batch_is_named_and_nothing_of_it_is_stored() {
    let app = App::start().await;
    declare(&app, needs_id()).await;
    app.put("/event-types/note", &json!({"schema": {"type": "string"}})).await.expect(201);
    let event = |event_type: &str, payload: Value| json!({"event_type": event_type, "payload": payload});
    let batch = json!({"events": [
        event("order.paid", json!({"id": 1})), event("order.paid", json!({"id": "x"})), event("note", json!(7)),
        event("other", json!(null)), event("order.paid", json!([])), event("note", json!("fine")), {"title": "t", "tags": "a"},
    ]});
    app.post("/events/batch", &batch).await.names(&["events[1].payload.id", "events[2].payload", "events[4].payload"]);
    assert_eq!(stored(&app).await, 0);
    let fine = json!({"events": [batch["events"][0], batch["events"][3], batch["events"][5], batch["events"][6]]});
    app.post("/events/batch", &fine).await.expect(201);
    assert_eq!(stored(&app).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failing_item_of_the_largest_batch_is_named() {
    let app = App::start().await;
    declare(&app, needs_id()).await;
    let events: Vec<Value> = (0..1_000)
        .map(|n| json!({"event_type": "order.paid", "payload": if n % 10 == 0 { json!({"id": n}) } else { json!({}) }}))
        .collect();
    let problem = app.post("/events/batch", &json!({"events": events})).await.problem(400, "invalid_request");
    let errors = problem["errors"].as_array().expect("errors");
    assert_eq!(errors.len(), 900);
    assert_eq!(errors[899]["field"], "events[999].payload.id");
    assert_eq!(stored(&app).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_cannot_be_parsed_is_refused_only_where_it_must_be_checked() {
    let app = App::start().await;
    declare(&app, json!({})).await;
    let nested = format!("{}1{}", "[".repeat(128), "]".repeat(128));
    for payload in ["1e999", r#""\ud800""#, nested.as_str()] {
        let body = |event_type: &str| format!(r#"{{"event_type": "{event_type}", "payload": {payload}}}"#);
        app.post_text("/events", &body("order.paid")).await.names(&["payload"]);
        app.post_text("/events", &body("other")).await.expect(201);
    }
    let nested = format!("{}1{}", "[".repeat(127), "]".repeat(127));
    app.post_text("/events", &format!(r#"{{"event_type": "order.paid", "payload": {nested}}}"#)).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_types_of_one_namespace_mean_nothing_in_another() {
    let app = App::start().await;
    let (north, south) = (app.namespace("north").await, app.namespace("south").await);
    declare(&north, needs_id()).await;
    declare(&south, json!({"type": "string"})).await;
    pay(&north, json!("x")).await.names(&["payload"]);
    pay(&south, json!("x")).await.expect(201);
    pay(&south, json!({"id": 1})).await.names(&["payload"]);
    pay(&north, json!({"id": 1})).await.expect(201);
    pay(&app, json!([])).await.expect(201);
    app.get(ORDER_PAID).await.problem(404, "event_type_not_found");
    app.delete(ORDER_PAID).await.problem(404, "event_type_not_found");
    south.delete(ORDER_PAID).await.expect(204);
    pay(&north, json!("x")).await.names(&["payload"]);
    // Recent events of others are not looked at.
    let problem = north.put(ORDER_PAID, &json!({"schema": {"required": ["id", "total"]}})).await;
    assert_eq!(problem.problem(409, "schema_rejects_recent_events")["recent_events"]["checked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_only_publish_cannot_declare_and_one_that_may_only_read_cannot_change() {
    let app = App::with_keys().await;
    let (publisher, reader, operator) =
        (app.holder_of("publish").await, app.holder_of("read").await, app.holder_of("operate").await);
    operator.put(ORDER_PAID, &json!({"schema": needs_id()})).await.expect(201);
    for stranger in [&publisher, &reader] {
        stranger.put(ORDER_PAID, &json!({})).await.problem(403, "scope_missing");
        stranger.delete(ORDER_PAID).await.problem(403, "scope_missing");
    }
    publisher.get(ORDER_PAID).await.problem(403, "scope_missing");
    reader.get(ORDER_PAID).await.expect(200);
    pay(&publisher, json!({})).await.names(&["payload.id"]);
}

/// The publisher may not have received the first response. It must not be told that its event is not stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_event_is_answered_even_if_its_type_has_become_stricter() {
    let app = App::start().await;
    declare(&app, json!({"type": "object"})).await;
    let paid = |key: &str, id: i64| json!({"event_type": "order.paid", "payload": {"n": id}, "idempotency_key": key});
    let first = app.post("/events", &paid("k", 1)).await.expect(201).json();
    let second = app.post("/events", &paid("l", 2)).await.expect(201).json();
    app.put(&format!("{ORDER_PAID}?force=true"), &json!({"schema": needs_id()})).await.expect(200);
    let again = app.post("/events", &paid("k", 1)).await.expect(200);
    assert_eq!((again.header("idempotent-replayed"), &again.json()["id"]), (Some("true"), &first["id"]));
    app.post("/events", &paid("k", 3)).await.names(&["payload.id"]);
    app.post("/events", &paid("new", 1)).await.names(&["payload.id"]);

    let fine = json!({"event_type": "order.paid", "payload": {"id": 7}, "idempotency_key": "m"});
    let batch = |items: &[&Value]| json!({"events": items});
    let mixed = batch(&[&paid("l", 2), &fine, &paid("k", 1), &fine, &paid("l", 2)]);
    let receipts = app.post("/events/batch", &mixed).await.expect(201).json()["events"].clone();
    let field = |name: &str| (0..5).map(|n| receipts[n][name].clone()).collect::<Vec<_>>();
    let stored_now = &receipts[1]["id"];
    assert_eq!(field("id"), [&second["id"], stored_now, &first["id"], stored_now, &second["id"]].map(Clone::clone));
    assert_eq!(field("repeated"), [true, false, true, true, true].map(Value::from));
    app.post("/events/batch", &batch(&[&paid("k", 1), &paid("l", 2)])).await.expect(201);
    let refused = batch(&[&paid("k", 1), &fine, &paid("new", 1)]);
    app.post("/events/batch", &refused).await.names(&["events[2].payload.id"]);
    let reused = json!({"event_type": "order.paid", "payload": {"id": 8}, "idempotency_key": "m"});
    let problem =
        app.post("/events/batch", &batch(&[&paid("k", 1), &reused])).await.problem(422, "idempotency_key_reused");
    assert!(problem["detail"].as_str().expect("a detail").contains("events[1]"), "{problem}");
    assert_eq!(stored(&app).await, 3);
    assert!(app.get("/metrics").await.expect(200).text.contains("waybill_events_rejected_total 3"));
}
