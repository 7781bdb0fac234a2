//! A new schema is checked against the latest events of its type.

use serde_json::{Value, json};

use super::{ORDER_PAID, declare, needs_id, pay};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_rejects_recent_events_is_refused_unless_it_is_forced() {
    let app = App::start().await;
    declare(&app, needs_id()).await;
    let mut ids = Vec::new();
    for payload in [json!({"id": 1}), json!({"id": 2, "total": 5}), json!({"id": 3, "total": "much"})] {
        ids.push(pay(&app, payload).await.expect(201).json()["id"].clone());
    }
    let stricter = json!({"schema": {"required": ["total"], "properties": {"total": {"type": "integer"}}}});
    let problem = app.put(ORDER_PAID, &stricter).await.problem(409, "schema_rejects_recent_events");
    let expected = json!({"checked": 3, "rejected": 2, "rejections": [
        {"event_id": ids[2], "errors": [{"field": "payload.total", "reason": "does not satisfy type: \"integer\""}]},
        {"event_id": ids[0], "errors": [{"field": "payload.total", "reason": "is required"}]},
    ]});
    assert_eq!(problem["recent_events"], expected);
    let view = app.get(ORDER_PAID).await.expect(200).json();
    assert_eq!((&view["version"], &view["schema"]), (&json!(1), &needs_id()));
    pay(&app, json!({"id": 4})).await.expect(201);
    let forced = app.put(&format!("{ORDER_PAID}?force=true"), &stricter).await.expect(200).json();
    assert_eq!((&forced["version"], &forced["recent_events"]["rejected"]), (&json!(2), &json!(3)));
    assert_eq!(forced["recent_events"]["checked"], 4);
    pay(&app, json!({"id": 5})).await.names(&["payload.total"]);
    // A schema that only differs in what it says to people, or that accepts more, is fine.
    let wider = json!({"schema": {"title": "any"}});
    let view = app.put(ORDER_PAID, &wider).await.expect(200).json();
    assert_eq!(view["recent_events"], json!({"checked": 4, "rejected": 0, "rejections": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_declaration_reports_what_it_rejects_and_is_made() {
    let app = App::start().await;
    pay(&app, json!({"id": "x"})).await.expect(201);
    let created = app.put(ORDER_PAID, &json!({"schema": needs_id()})).await.expect(201).json();
    assert_eq!((&created["recent_events"]["checked"], &created["recent_events"]["rejected"]), (&json!(1), &json!(1)));
    // A change of anything but the schema is not about its events.
    app.put(ORDER_PAID, &json!({"schema": needs_id(), "description": "Paid."})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_latest_events_count_and_only_some_of_those_rejected_are_named() {
    let app = App::start().await;
    let batch = |payload: Value, count: usize| {
        let event = json!({"event_type": "order.paid", "payload": payload});
        json!({"events": vec![event; count]})
    };
    app.put(ORDER_PAID, &json!({})).await.expect(201);
    app.post("/events/batch", &batch(json!("old"), 5)).await.expect(201);
    app.post("/events/batch", &batch(json!({"id": 1}), 100)).await.expect(201);
    let view = declare(&app, needs_id()).await;
    assert_eq!(view["recent_events"], json!({"checked": 100, "rejected": 0, "rejections": []}));
    let problem = app.put(ORDER_PAID, &json!({"schema": {"type": "string"}})).await;
    let recent = problem.problem(409, "schema_rejects_recent_events")["recent_events"].clone();
    assert_eq!((&recent["checked"], &recent["rejected"]), (&json!(100), &json!(100)));
    assert_eq!(recent["rejections"].as_array().expect("rejections").len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_large_events_fewer_are_read() {
    let app = App::start().await;
    app.put(ORDER_PAID, &json!({})).await.expect(201);
    for _ in 0..12 {
        pay(&app, json!("x".repeat(1_000_000))).await.expect(201);
    }
    let view = declare(&app, json!({"type": "string"})).await;
    assert_eq!(view["recent_events"], json!({"checked": 9, "rejected": 0, "rejections": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_stored_payloads_is_shown() {
    let app = App::with_keys().await;
    let operator = app.holding(&app.make_key(json!({"scopes": ["operate", "reveal"]})).await);
    let publisher = app.holder_of("publish").await;
    operator.put(ORDER_PAID, &json!({})).await.expect(201);
    let secret = json!({"customers": {"s3cret-name": {"pin": "s3cret-value"}}, "s3cret-extra": ["s3cret-item"]});
    pay(&publisher, secret).await.expect(201);
    let schema = json!({
        "properties": {"customers": {"additionalProperties": {"properties": {"pin": {"type": "integer", "enum": [1]}}}}},
        "patternProperties": {"^s3": {"items": {"maxLength": 1}}},
    });
    let reply = operator.put(ORDER_PAID, &json!({"schema": schema})).await.expect(409);
    assert!(!reply.text.contains("s3cret"), "{}", reply.text);
    let errors = reply.json()["recent_events"]["rejections"][0]["errors"].clone();
    let fields: Vec<&str> =
        errors.as_array().expect("errors").iter().filter_map(|error| error["field"].as_str()).collect();
    assert_eq!(fields, ["payload.customers.*.pin", "payload.customers.*.pin", "payload.*[0]"]);
    let reply = operator.put(&format!("{ORDER_PAID}?force=true"), &json!({"schema": schema})).await.expect(200);
    assert!(!reply.text.contains("s3cret-"), "{}", reply.text);
}

/// A schema tells whether a guess about a value is right.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_a_schema_rejects_are_only_counted_for_those_who_may_not_see_them() {
    let app = App::with_keys().await;
    app.put(ORDER_PAID, &json!({})).await.expect(201);
    pay(&app, json!({"id": 1, "card": {"pin": "1234"}})).await.expect(201);
    let guess =
        json!({"schema": {"properties": {"id": {"const": 2}, "card": {"properties": {"pin": {"pattern": "^9"}}}}}});
    let recent_of = async |holder: &App| {
        let problem = holder.put(ORDER_PAID, &guess).await.problem(409, "schema_rejects_recent_events");
        problem["recent_events"].clone()
    };
    let operator = app.holder_of("operate").await;
    assert_eq!(recent_of(&operator).await, json!({"checked": 1, "rejected": 1, "rejections": []}));
    let revealing = app.holding(&app.make_key(json!({"scopes": ["operate", "reveal"]})).await);
    let fields_of = |recent: &Value| {
        let errors = recent["rejections"][0]["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().expect("a field").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(fields_of(&recent_of(&revealing).await), ["payload.card.pin", "payload.id"]);
    app.patch("/namespaces/default", &json!({"settings": {"redact": ["payload.card.*"]}})).await.expect(200);
    assert_eq!(fields_of(&recent_of(&revealing).await), ["payload.id"]);
    app.patch("/namespaces/default", &json!({"settings": {"redact": ["payload.*"]}})).await.expect(200);
    assert_eq!(recent_of(&revealing).await, json!({"checked": 1, "rejected": 1, "rejections": []}));
    let page = format!("/ui{ORDER_PAID}?check=true");
    assert!(!app.get(&page).await.text.contains("payload.id"));
}
