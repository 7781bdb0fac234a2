//! Subscriptions, from the first to one too many.

use serde_json::{Value, json};

use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::receiver::{Receiver, Reply as Answer};
use crate::support::{App, Options, Reply, until};

pub(super) async fn run(coverage: &Coverage) {
    let flags = vec!["--max-subscriptions=4".into(), "--breaker-failures=2".into()];
    let server = CheckedServer::of(App::start_with(Options { flags, ..Options::default() }).await, coverage);
    let receiver = Receiver::start().await;
    let (id, watched) = create(&server, &receiver).await;
    change(&server, &id).await;
    rotate(&server, &id).await;
    check(&server).await;
    test(&server, &receiver, &id).await;
    watch(&server, &receiver, &format!("/subscriptions/{watched}")).await;
    let page = server.get("/subscriptions?is_active=true&limit=1").await.expect(200).json();
    let next = page["next"].as_str().expect("a cursor");
    server.get(&format!("/subscriptions?is_active=true&after={next}")).await.expect(200);
    server.send(server.request("DELETE", &format!("/subscriptions/{id}"))).await.expect(204);
}

async fn create(server: &CheckedServer<'_>, receiver: &Receiver) -> (Value, Value) {
    let everything = json!({
        "name": "everything", "url": receiver.url("/everything"), "method": "PUT", "event_types": ["a", "b.*", "*"],
        "tags": ["one", "two"], "labels": {"region": "eu"}, "headers": {"X-Token": "t"}, "timeout_ms": 60_000,
        "filter": {"$or": [{"payload.a.0": {"$not": {"$in": [1, null]}}}, {"created_at": "2026-03-09T08:15:02Z"}]},
        "backoff": {"strategy": "exponential", "base_seconds": 1, "max_seconds": 9, "jitter": "full"},
        "max_attempts": 100,
        "retry_on": ["404", "5xx", "400-403", "timeout", "connection"], "ordering": "by_key", "on_exhausted": "block",
        "ordering_key_path": "user.id", "max_concurrency": 1000, "rate_per_second": 0.01, "is_active": false,
        "transform": {"keep": ["a"], "drop": ["a.b"], "template": "{{ payload }}", "content_type": "text/plain"},
    });
    let created = server.post("/subscriptions", &everything).await.expect(201).json();
    for transform in [json!({"envelope": true}), json!({"cloudevents": "binary"})] {
        let more = json!({"url": receiver.url("/more"), "event_types": ["more"], "transform": transform});
        server.post("/subscriptions", &more).await.expect(201);
    }
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let last =
        json!({"url": receiver.url("/watched"), "event_types": ["watched"], "secret": secret, "max_attempts": 1});
    let watched = server.post("/subscriptions", &last).await.expect(201).json();
    server.post("/subscriptions", &last).await.problem(409, "too_many_subscriptions");
    (created["id"].clone(), watched["id"].clone())
}

async fn check(server: &CheckedServer<'_>) {
    let event = server.post("/events", &json!({"event_type": "a", "payload": {"n": 1}})).await.expect(201).json();
    let settings = json!({
        "event_id": event["id"], "event_types": ["a"], "tags": [], "labels": {}, "filter": {"payload.n": {"$gt": 1}},
        "transform": {"template": "{{ payload.n }}", "content_type": "text/plain"},
    });
    server.post("/subscriptions/check", &settings).await.expect(200);
    server.post("/subscriptions/check", &json!({"event_id": event["id"]})).await.expect(200);
    server.post("/subscriptions/check", &json!({"event_id": 999_999})).await.problem(404, "event_not_found");
}

async fn change(server: &CheckedServer<'_>, id: &Value) {
    let patch = async |body: Value| -> Reply {
        server.send(server.request("PATCH", &format!("/subscriptions/{id}")).json(&body)).await
    };
    patch(json!({})).await.expect(200);
    let every_default = json!({
        "name": null, "method": null, "event_types": null, "tags": null, "labels": null, "filter": null,
        "headers": null, "timeout_ms": null, "max_attempts": null, "backoff": null, "retry_on": null, "ordering": null,
        "on_exhausted": null, "ordering_key_path": null, "max_concurrency": null, "rate_per_second": null,
        "transform": null, "is_active": true,
    });
    patch(every_default).await.expect(200);
    patch(json!({"backoff": {"strategy": "fixed", "seconds": 0}, "is_active": false})).await.expect(200);
    patch(json!({"headers": {"X-Token": "u", "X-Other": null}})).await.expect(200);
    outdated(server, id).await;
}

/// Writes that expect a version that is no longer the current one.
async fn outdated(server: &CheckedServer<'_>, id: &Value) {
    let path = format!("/subscriptions/{id}");
    for (method, path) in [("PATCH", path.clone()), ("DELETE", path.clone()), ("POST", format!("{path}/rotate-secret"))]
    {
        let request = server.request(method, &path).header("if-match", "\"1\"");
        let request = if method == "DELETE" { request } else { request.json(&json!({})) };
        server.send(request).await.problem(412, "precondition_failed");
    }
}

async fn rotate(server: &CheckedServer<'_>, id: &Value) {
    let path = format!("/subscriptions/{id}/rotate-secret");
    for _ in 0..9 {
        server.post(&path, &json!({})).await.expect(200);
    }
    server.post(&path, &json!({"overlap_seconds": 604_800})).await.problem(409, "too_many_secrets");
    server.post(&path, &json!({"overlap_seconds": 0})).await.expect(200);
}

async fn test(server: &CheckedServer<'_>, receiver: &Receiver, id: &Value) {
    let path = format!("/subscriptions/{id}/test");
    for (reply, delivered) in [(Answer::status(204), true), (Answer::status(500), false), (Answer::reset(), false)] {
        receiver.next(reply);
        assert_eq!(server.post_empty(&path).await.expect(200).json()["delivered"], delivered);
    }
}

/// Endpoints that are healthy, paused, behind an open breaker, and gone.
async fn watch(server: &CheckedServer<'_>, receiver: &Receiver, path: &str) {
    let endpoint = async || server.get(path).await.expect(200).json()["endpoint"].clone();
    until("closed", async || endpoint().await["breaker"] == "closed").await;
    let send_to = async |pointer: &str, replies: Vec<Answer>| {
        let url = json!({"url": receiver.url(pointer)});
        server.send(server.request("PATCH", path).json(&url)).await.expect(200);
        for reply in replies {
            receiver.next(reply);
            server.app.publish(json!({"event_type": "watched"})).await;
        }
    };
    send_to("/paused", vec![Answer::too_many_requests("3600")]).await;
    until("paused", async || !endpoint().await["paused_until"].is_null()).await;
    server.post_empty(&format!("{path}/resume")).await.expect(200);
    send_to("/open", vec![Answer::status(500), Answer::status(500)]).await;
    until("open", async || endpoint().await["breaker"] == "open").await;
    send_to("/gone", vec![Answer::gone()]).await;
    until("it is switched off", async || server.get(path).await.json()["inactive_reason"] == "gone").await;
}
