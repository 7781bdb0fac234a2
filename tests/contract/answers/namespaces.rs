//! Namespaces: created, listed, read and changed.

use serde_json::json;

use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::{App, Options};

pub(super) async fn run(coverage: &Coverage) {
    let flags = vec!["--max-namespaces".to_owned(), "2".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let server = CheckedServer::of(app, coverage);
    server.post("/namespaces", &json!({"name": "team", "settings": {}})).await.expect(201);
    server.post("/namespaces", &json!({"name": "team"})).await.problem(409, "namespace_exists");
    server.post("/namespaces", &json!({"name": "other"})).await.problem(409, "too_many_namespaces");
    server.get("/namespaces?limit=1").await.expect(200);
    for namespace in ["team", "2"] {
        server.get(&format!("/namespaces/{namespace}")).await.expect(200);
        let change = server.request("PATCH", &format!("/namespaces/{namespace}")).json(&json!({"settings": {}}));
        server.send(change).await.expect(200);
    }
    let limits = json!({"settings": {"limits": {"publishes_per_second": 1, "waiting_events": 5, "sources": 0}}});
    server.send(server.request("PATCH", "/namespaces/default").json(&limits)).await.expect(200);
    server.get("/usage").await.expect(200);
    let event = json!({"title": "t", "tags": "a"});
    // On a busy machine more than a second may pass between two of them.
    let mut last = server.post("/events", &event).await.expect(201);
    while last.status == 201 {
        last = server.post("/events", &event).await;
    }
    last.problem(429, "limit_exceeded");
    for unknown in ["nobody", "4711", "9007199254740991"] {
        server.get(&format!("/namespaces/{unknown}")).await.problem(404, "namespace_not_found");
        let change = server.request("PATCH", &format!("/namespaces/{unknown}")).json(&json!({}));
        server.send(change).await.problem(404, "namespace_not_found");
    }
    server.get("/namespaces/No").await.names(&["name"]);
}
