//! Schemas and payloads that are meant to keep the server busy. The limits are counted in parts and steps, so the answers
//! are the same on a slow machine.

use serde_json::{Map, Value, json};

use super::{ORDER_PAID, declare, pay, stored};
use crate::support::App;

async fn refused(app: &App, schema: Value, field: &str) {
    app.put(ORDER_PAID, &json!({"schema": schema})).await.names(&[field]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_fetched_for_a_schema() {
    let app = App::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    for reference in [format!("http://{address}/schema"), "file:///etc/passwd".to_owned(), "other.json".to_owned()] {
        refused(&app, json!({"properties": {"a": {"$ref": reference}}}), "schema.properties.a.$ref").await;
        refused(&app, json!({"$dynamicRef": reference}), "schema.$dynamicRef").await;
    }
    refused(&app, json!({"$schema": format!("http://{address}/meta")}), "schema.$schema").await;
    // `$id` names the schema, and is not an address to look at.
    declare(&app, json!({"$id": format!("http://{address}/schema"), "$ref": "#/$defs/a", "$defs": {"a": {}}})).await;
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("the server has asked for a schema"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_without_end_or_measure_are_refused() {
    let app = App::start().await;
    refused(&app, json!({"$ref": "#"}), "schema").await;
    refused(&app, json!({"allOf": [{"not": {"$ref": "#/allOf/0"}}]}), "schema.allOf[0]").await;
    refused(&app, json!({"pattern": "^(a+)+\\1$"}), "schema.pattern").await;
    refused(&app, json!({"items": {"pattern": "(?<=a)b"}}), "schema.items.pattern").await;
    let mut definitions: Map<String, Value> = (0..20)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"anyOf": [next, next]}))
        })
        .collect();
    definitions.insert("d20".into(), json!({"type": "string"}));
    let reply = app.put(ORDER_PAID, &json!({"schema": {"$ref": "#/$defs/d0", "$defs": definitions}})).await;
    let problem = reply.problem(400, "invalid_request");
    assert!(problem["detail"].as_str().expect("a detail").contains("at most 1000 schemas"), "{problem}");
    let deep = (0..40).fold(json!({}), |inner, _| json!({"not": inner}));
    let problem = app.put(ORDER_PAID, &json!({"schema": deep})).await.problem(400, "invalid_request");
    assert!(problem["detail"].as_str().expect("a detail").contains("inside each other"), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_would_take_forever_is_refused_and_the_server_goes_on() {
    let app = App::start().await;
    let mut definitions: Map<String, Value> = (0..60)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"properties": {"a": {"anyOf": [next, next]}}}))
        })
        .collect();
    definitions.insert("d60".into(), json!({"type": "integer"}));
    declare(&app, json!({"$ref": "#/$defs/d0", "$defs": definitions})).await;
    let nested = |depth: usize, leaf: Value| (0..depth).fold(leaf, |inner, _| json!({"a": inner}));
    pay(&app, nested(60, json!(1))).await.expect(201);
    let problem = pay(&app, nested(60, json!("x"))).await.problem(400, "invalid_request");
    let expected = json!([{"field": "payload", "reason": "takes too many steps to check against the schema"}]);
    assert_eq!(problem["errors"], expected);
    pay(&app, nested(3, json!(1))).await.expect(201);
    // One such item ends the check of a batch.
    let event = |payload: Value| json!({"event_type": "order.paid", "payload": payload});
    let batch = json!({"events": [event(json!(1)), event(nested(60, json!("x"))), event(json!(1))]});
    app.post("/events/batch", &batch).await.names(&["events[1].payload"]);
    assert_eq!(stored(&app).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn costly_rules_for_large_payloads_are_refused() {
    let app = App::start().await;
    let words: Vec<String> = (0..5_000).map(|n| format!("word{n}")).collect();
    declare(&app, json!({"items": {"enum": words}})).await;
    pay(&app, json!(vec!["word4999"; 100])).await.expect(201);
    pay(&app, json!(vec!["word4999"; 5_000])).await.names(&["payload"]);
    app.put(&format!("{ORDER_PAID}?force=true"), &json!({"schema": {"not": {"pattern": "(?:a|b)*a(?:a|b){3000}c"}}}))
        .await
        .expect(200);
    pay(&app, json!("ab".repeat(100))).await.expect(201);
    pay(&app, json!("ab".repeat(100_000))).await.names(&["payload"]);
}
