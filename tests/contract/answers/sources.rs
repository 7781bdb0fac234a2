//! Sources, and the webhooks that come in through them.

use serde_json::{Value, json};

use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::sources::hmac_hex;
use crate::support::{App, Options};

pub(super) async fn run(coverage: &Coverage) {
    let flags = vec!["--max-sources=2".into()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let server = CheckedServer::of(app, coverage);
    let slack = json!({"name": "slack", "provider": "slack", "verify": {"secret": "s", "tolerance_seconds": 60}});
    let slack = server.post("/sources", &slack).await.expect(201).json();
    let everything = json!({
        "name": "everything", "tags": ["one", "two"], "labels": {"region": "eu"}, "is_active": true,
        "verify": {"scheme": "hmac", "header": "X-S", "algorithm": "sha1", "encoding": "base64", "prefix": "a", "secret": "s"},
        "event_type_from": {"value": "fixed"}, "idempotency_key_from": {"path": "a.0"},
        "respond": {"status": 201, "body": "b", "content_type": "text/css"},
    });
    let everything = server.post("/sources", &everything).await.expect(201).json();
    let one_more = json!({"name": "one more", "verify": {"scheme": "none"}});
    server.post("/sources", &one_more).await.problem(409, "too_many_sources");
    change(&server, &everything).await;
    rotate(&server, &everything).await;
    receive(&server, &slack).await;
    let next = server.get("/sources?limit=1").await.expect(200).json();
    let next = next["next"].as_str().expect("a cursor");
    server.get(&format!("/sources?limit=1&after={next}")).await.expect(200);
    server.send(server.request("DELETE", &format!("/sources/{}", everything["id"]))).await.expect(204);
    let basic = json!({"name": "basic", "verify": {"scheme": "basic", "username": "ann", "secret": "s"}});
    let basic = server.post("/sources", &basic).await.expect(201).json();
    server.get(&format!("/sources/{}", basic["id"])).await.expect(200);
    let request = server.request("POST", basic["path"].as_str().expect("a path")).basic_auth("ann", Some("s"));
    server.send(request.body("a=b")).await.expect(202);
}

async fn change(server: &CheckedServer<'_>, source: &Value) {
    let path = format!("/sources/{}", source["id"]);
    let patch = async |body: Value| server.send(server.request("PATCH", &path).json(&body)).await;
    patch(json!({})).await.expect(200);
    let every_default = json!({
        "verify": {"algorithm": null, "encoding": null, "prefix": null, "tolerance_seconds": null},
        "event_type_from": null, "idempotency_key_from": null, "tags": null, "labels": null, "respond": null,
        "is_active": true,
    });
    patch(every_default).await.expect(200);
    for (method, path) in [("PATCH", path.clone()), ("DELETE", path.clone()), ("POST", format!("{path}/rotate-secret"))]
    {
        let request = server.request(method, &path).header("if-match", "\"1\"");
        let request = if method == "DELETE" { request } else { request.json(&json!({})) };
        let request = if method == "POST" { request.json(&json!({"secret": "x"})) } else { request };
        server.send(request).await.problem(412, "precondition_failed");
    }
}

async fn rotate(server: &CheckedServer<'_>, source: &Value) {
    let path = format!("/sources/{}/rotate-secret", source["id"]);
    for n in 0..9 {
        server.post(&path, &json!({"secret": format!("s{n}")})).await.expect(200);
    }
    server.post(&path, &json!({"secret": "x"})).await.problem(409, "too_many_secrets");
    server.post(&path, &json!({"secret": "x", "overlap_seconds": 0})).await.expect(200);
}

async fn receive(server: &CheckedServer<'_>, slack: &Value) {
    let path = slack["path"].as_str().expect("a path");
    let send = async |secret: &str, body: Value| {
        let (now, body) = (chrono::Utc::now().timestamp(), body.to_string());
        let signature = format!("v0={}", hmac_hex(secret, format!("v0:{now}:{body}").as_bytes()));
        let request = server.request("POST", path).header("content-type", "application/json").body(body);
        let request = request.header("x-slack-request-timestamp", now).header("x-slack-signature", signature);
        server.send(request).await
    };
    send("s", json!({"type": "url_verification", "challenge": "c"})).await.expect(200);
    send("wrong", json!({})).await.problem(401, "webhook_refused");
    let respond = json!({"respond": {"status": 202}});
    server.send(server.request("PATCH", &format!("/sources/{}", slack["id"])).json(&respond)).await.expect(200);
    send("s", json!({"event": {"type": "app_mention"}})).await.expect(202);
    server.send(server.request("POST", path).body(vec![0; 2 * 1024 * 1024])).await.problem(413, "payload_too_large");
    let unknown = format!("/in/{}", "0".repeat(32));
    server.post(&unknown, &json!({})).await.problem(404, "source_not_found");
}
