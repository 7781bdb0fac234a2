//! Event types: declared, changed, read, listed and deleted, and what they refuse.

use serde_json::json;

use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::{App, Options};

pub(super) async fn run(coverage: &Coverage) {
    let flags = vec!["--max-event-types".to_owned(), "1".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let server = CheckedServer::of(app, coverage);
    let path = "/event-types/order.paid";
    let put = async |path: &str, body: &serde_json::Value| server.send(server.request("PUT", path).json(body)).await;
    let schema = json!({"type": "object", "required": ["id"]});
    put(path, &json!({"description": "paid", "schema": schema, "examples": [{"id": 1}]})).await.expect(201);
    put(path, &json!({"schema": {"type": 7}})).await.names(&["schema.type"]);
    put("/event-types/other", &json!({})).await.problem(409, "too_many_event_types");
    server.post("/events", &json!({"event_type": "order.paid", "payload": {}})).await.names(&["payload.id"]);
    let batch = json!({"events": [{"event_type": "order.paid", "payload": {"id": 1}}, {"event_type": "order.paid"}]});
    server.post("/events/batch", &batch).await.names(&["events[1].payload"]);
    server.post("/events", &json!({"event_type": "order.paid", "payload": {"id": 1}})).await.expect(201);
    put(path, &json!({"schema": false})).await.names(&["schema"]);
    let stricter = json!({"schema": {"type": "object", "required": ["id", "total"]}});
    put(path, &stricter).await.problem(409, "schema_rejects_recent_events");
    put(&format!("{path}?force=true"), &stricter).await.expect(200);
    server.get(path).await.expect(200);
    server.get(&format!("{path}?version=1")).await.expect(200);
    server.get(&format!("{path}?version=3")).await.problem(404, "event_type_version_not_found");
    server.get(&format!("{path}?version=0")).await.names(&["version"]);
    server.get("/event-types/order.lost").await.problem(404, "event_type_not_found");
    server.get("/event-types?limit=1").await.expect(200);
    server.get("/event-types?limit=0").await.names(&["limit"]);
    let outdated = |method: &str| server.request(method, path).header("if-match", "\"1\"");
    server.send(outdated("PUT").json(&json!({}))).await.problem(412, "precondition_failed");
    server.send(outdated("DELETE")).await.problem(412, "precondition_failed");
    server.send(server.request("DELETE", &format!("{path}?force=true"))).await.names(&["force"]);
    server.send(server.request("DELETE", path)).await.expect(204);
    server.send(server.request("DELETE", path)).await.problem(404, "event_type_not_found");
}
