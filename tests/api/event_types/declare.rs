//! Declarations are made, replaced, refused and removed.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ORDER_PAID, declare, needs_id, pay};
use crate::support::{App, Options, Reply};

async fn send(app: &App, method: Method, if_match: &str, body: &Value) -> Reply {
    let request = app.client.request(method, format!("{}{ORDER_PAID}", app.base)).header("if-match", if_match);
    Reply::of(request.json(body).send().await.expect("a response")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_is_declared_and_read_as_it_was_sent() {
    let app = App::start().await;
    let body = r#"{"description": "Paid.", "schema": {"type" : "object", "properties": {"z": {}, "a": {"minimum": 1e0}}}, "examples": [{"a": 1.50}]}"#;
    let request = app.client.put(format!("{}{ORDER_PAID}", app.base)).header("content-type", "application/json");
    let created = Reply::of(request.body(body).send().await.expect("a response")).await.expect(201);
    assert_eq!((created.header("location"), created.header("etag")), (Some(ORDER_PAID), Some("\"1\"")));
    let view = created.json();
    assert_eq!(view["recent_events"], json!({"checked": 0, "rejected": 0, "rejections": []}));
    let read = app.get(ORDER_PAID).await.expect(200);
    assert_eq!(read.header("etag"), Some("\"1\""));
    assert!(read.text.contains(r#""schema":{"type" : "object", "properties": {"z": {}, "a": {"minimum": 1e0}}}"#));
    assert!(read.text.contains(r#""examples":[{"a": 1.50}]"#));
    let read = read.json();
    assert_eq!((&read["name"], &read["description"]), (&json!("order.paid"), &json!("Paid.")));
    assert_eq!((&read["version"], &read["versions"], &read["revision"]), (&json!(1), &json!([1]), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declaration_without_a_schema_accepts_any_payload() {
    let app = App::start().await;
    let view = app.put(ORDER_PAID, &json!({})).await.expect(201).json();
    assert_eq!((&view["schema"], &view["examples"], &view["description"]), (&json!(null), &json!([]), &json!(null)));
    for payload in [json!(null), json!({"id": "x"}), json!([])] {
        pay(&app, payload).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_made_only_to_the_revision_that_the_client_has_seen() {
    let app = App::start().await;
    send(&app, Method::PUT, "\"1\"", &json!({})).await.problem(412, "precondition_failed");
    declare(&app, needs_id()).await;
    for stale in ["\"2\"", "W/\"1\"", "\"01\""] {
        let problem = send(&app, Method::PUT, stale, &json!({})).await.problem(412, "precondition_failed");
        assert!(problem["detail"].as_str().expect("a detail").contains("revision 1"), "{problem}");
    }
    let changed = send(&app, Method::PUT, "\"1\"", &json!({"description": "Paid."})).await.expect(200);
    assert_eq!(changed.header("etag"), Some("\"2\""));
    send(&app, Method::DELETE, "\"1\"", &json!({})).await.problem(412, "precondition_failed");
    send(&app, Method::DELETE, "\"2\"", &json!({})).await.expect(204);
    send(&app, Method::DELETE, "\"2\"", &json!({})).await.problem(404, "event_type_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_declarations_of_the_same_revision_one_is_made() {
    let app = App::start().await;
    declare(&app, needs_id()).await;
    let put = async |n: usize| send(&app, Method::PUT, "\"1\"", &json!({"description": format!("{n}")})).await.status;
    let mut statuses = futures_util::future::join_all((0..8).map(put)).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_must_satisfy_the_schema() {
    let app = App::start().await;
    let body = json!({"schema": needs_id(), "examples": [{"id": 1}, {"id": "x"}, {}]});
    app.put(ORDER_PAID, &body).await.names(&["examples[1].id", "examples[2].id"]);
    app.get(ORDER_PAID).await.problem(404, "event_type_not_found");
    app.put(ORDER_PAID, &json!({"examples": [1, "x"]})).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_declarations_are_refused_by_field() {
    let app = App::start().await;
    let deep = (0..64).fold(json!({}), |inner, _| json!({"not": inner}));
    for (body, field) in [
        (json!({"schema": true}), "schema"),
        (json!({"schema": []}), "schema"),
        (json!({"schema": {"type": "strin"}}), "schema.type"),
        (json!({"schema": {"properties": {"a": {"minimum": "1"}}}}), "schema.properties.a.minimum"),
        (json!({"schema": {"$schema": "http://json-schema.org/draft-07/schema#"}}), "schema.$schema"),
        (json!({"schema": deep}), "schema"),
        (json!({"examples": {}}), "examples"),
        (json!({"examples": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}), "examples"),
        (json!({"description": "x".repeat(10_001)}), "description"),
        (json!({"name": "other"}), "name"),
    ] {
        app.put(ORDER_PAID, &body).await.names(&[field]);
    }
    let twice = r#"{"schema": {"properties": {"a": {}, "a": {}}}}"#;
    let request = app.client.put(format!("{}{ORDER_PAID}", app.base)).header("content-type", "application/json");
    Reply::of(request.body(twice).send().await.expect("a response")).await.names(&["schema.properties.a"]);
    let large = json!({"schema": {"description": "x".repeat(65_536)}});
    app.put(ORDER_PAID, &large).await.problem(413, "payload_too_large");
    let large = json!({"examples": ["x".repeat(65_536)]});
    app.put(ORDER_PAID, &large).await.problem(413, "payload_too_large");
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_types").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_those_that_events_may_have() {
    let app = App::start().await;
    app.put("/event-types/waybill.subscription.deactivated", &json!({})).await.names(&["name"]);
    app.put(&format!("/event-types/{}", "x".repeat(256)), &json!({})).await.names(&["name"]);
    app.put("/event-types/a%00b", &json!({})).await.names(&["name"]);
    for (path, name) in [("a%2Fb", "a/b"), ("%C3%BC%20%25", "ü %"), ("waybill", "waybill"), ("a+b", "a+b")] {
        let path = format!("/event-types/{path}");
        let schema = json!({"schema": {"type": "integer"}});
        let created = app.put(&path, &schema).await.expect(201);
        assert_eq!(created.json()["name"], name);
        assert_eq!(app.get(&path).await.expect(200).json()["name"], name);
        let event = json!({"event_type": name, "payload": "x"});
        app.post("/events", &event).await.names(&["payload"]);
        app.delete(&path).await.expect(204);
        app.post("/events", &event).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_types_is_limited() {
    let flags = vec!["--max-event-types".to_owned(), "2".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    for name in ["a", "b"] {
        app.put(&format!("/event-types/{name}"), &json!({})).await.expect(201);
    }
    app.put("/event-types/c", &json!({})).await.problem(409, "too_many_event_types");
    app.put("/event-types/a", &json!({"description": "changed"})).await.expect(200);
    app.namespace("other").await.put("/event-types/c", &json!({})).await.expect(201);
    app.delete("/event-types/b").await.expect(204);
    app.put("/event-types/c", &json!({})).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_leave_audit_entries() {
    let app = App::start().await;
    let created = declare(&app, needs_id()).await;
    pay(&app, json!({"id": 1})).await.expect(201);
    app.put(ORDER_PAID, &json!({"schema": needs_id()})).await.expect(200);
    app.put(&format!("{ORDER_PAID}?force=true"), &json!({"schema": {"type": "null"}})).await.expect(200);
    app.delete(ORDER_PAID).await.expect(204);
    let entries = app.get("/audit").await.expect(200).json();
    let entries = entries["entries"].as_array().expect("entries");
    let shown: Vec<(&str, &Value)> =
        entries.iter().map(|entry| (entry["action"].as_str().expect("an action"), &entry["detail"])).collect();
    let expected = [
        (
            "event_type.created",
            json!({"name": "order.paid", "version": 1, "changes": null, "rejected_recent_events": 0}),
        ),
        (
            "event_type.updated",
            json!({"name": "order.paid", "version": 2, "changes": ["schema"], "rejected_recent_events": 1}),
        ),
        ("event_type.deleted", json!({"name": "order.paid", "version": 2})),
    ];
    assert_eq!(shown, expected.iter().map(|(action, detail)| (*action, detail)).collect::<Vec<_>>());
    for entry in entries {
        assert_eq!(entry["subject"], json!({"kind": "event_type", "id": created["id"]}));
    }
}
