//! The requests that every route refuses.

use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::App;

/// The highest id, which nothing has.
const UNKNOWN: i64 = (1 << 53) - 1;

/// More bytes than one event may have, and more than a batch may have.
const TOO_LARGE: [usize; 2] = [2 * 1024 * 1024, 17 * 1024 * 1024];

pub(super) async fn run(coverage: &Coverage) {
    let server = CheckedServer::of(App::with_keys().await, coverage);
    server.get("/nowhere").await.problem(404, "route_not_found");
    server.get("/problems/no_such_code").await.problem(404, "route_not_found");
    server.get("/events/zero").await.names(&["id"]);
    for operation in coverage.document.operations().into_iter().filter(|operation| !operation.is_foreign()) {
        server.send(server.example_of(&operation, UNKNOWN, "?colour=red")).await.problem(400, "invalid_request");
        let reply = server.send(server.request("TRACE", &operation.with_id(UNKNOWN))).await;
        reply.problem(405, "method_not_allowed");
        server.send(server.request("OPTIONS", &operation.with_id(UNKNOWN))).await.expect(204);
        if !["/health", "/ready"].contains(&operation.path.as_str()) {
            let elsewhere = server.example_of(&operation, UNKNOWN, "").header("host", "evil.example");
            server.send(elsewhere).await.problem(421, "host_not_allowed");
        }
        if operation.path.contains("{id}") {
            let code = not_found_code(&operation.path);
            let request = server.example_of(&operation, UNKNOWN, operation.required_query());
            server.send(request).await.problem(404, code);
        }
        if operation.method != "GET" {
            let path = format!("{}{}", operation.with_id(UNKNOWN), operation.required_query());
            let write = || server.request(&operation.method, &path);
            let json = || write().header("content-type", "application/json");
            server.send(json().body("{")).await.problem(400, "malformed_json");
            server.send(json().body("[]")).await.names(&["body"]);
            server.send(write().body("{}")).await.problem(415, "unsupported_media_type");
            let compressed = json().header("content-encoding", "gzip").body("{}");
            server.send(compressed).await.problem(415, "unsupported_content_encoding");
            let foreign = json().header("origin", "https://evil.example").body("{}");
            server.send(foreign).await.problem(403, "origin_not_allowed");
            let is_batch = ["/events/batch", "/events/settle"].contains(&operation.path.as_str());
            let body = " ".repeat(TOO_LARGE[usize::from(is_batch)]);
            server.send(json().body(body)).await.problem(413, "payload_too_large");
        }
    }
}

/// Returns the error code of an unknown id under a path.
fn not_found_code(path: &str) -> &'static str {
    match path.split('/').nth(1) {
        Some("deliveries") => "delivery_not_found",
        Some("dead-letters") => "dead_letter_not_found",
        Some("operations") => "operation_not_found",
        Some("keys") => "key_not_found",
        Some("subscriptions") => "subscription_not_found",
        Some("sources") => "source_not_found",
        _ => "event_not_found",
    }
}
