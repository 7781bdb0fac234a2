//! Servers that require keys.

use serde_json::{Value, json};
use waybill::domain::api_key::ApiKey;

use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::keys::MadeKey;
use crate::support::{App, database};

pub(super) async fn run(coverage: &Coverage) {
    let server = CheckedServer::of(App::with_fixed_clock().await.with_admin_key().await, coverage);
    let fields = json!({"name": "workers", "scopes": ["work"], "tag_patterns": ["a.*"]});
    let made = server.post("/keys", &fields).await.expect(201).json();
    server.post("/keys", &fields).await.problem(409, "key_name_taken");
    let key = MadeKey::of(&made);
    let as_worker = |method: &str, path: &str| server.request(method, path).headers(bearer(&key.key));
    server.send(as_worker("GET", "/events")).await.problem(403, "scope_missing");
    server.send(as_worker("GET", "/events/subscribe?tags=b&worker_id=w:1")).await.problem(403, "tag_not_allowed");
    let slower = || server.request("PATCH", &format!("/keys/{}", key.id)).json(&json!({"publishes_per_second": 5}));
    server.send(slower()).await.expect(200);
    server.post(&format!("/keys/{}/rotate", key.id), &json!({"overlap_seconds": 5})).await.expect(200);
    server.app.advance(5);
    server.send(as_worker("GET", "/events/subscribe?tags=a.b&worker_id=w:1")).await.problem(401, "key_expired");
    server.post_empty(&format!("/keys/{}/rotate", key.id)).await.expect(200);
    server.get("/keys").await.expect(200);
    server.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    server.send(as_worker("GET", "/events/subscribe?tags=a.b&worker_id=w:1")).await.problem(401, "key_revoked");
    server.post_empty(&format!("/keys/{}/rotate", key.id)).await.problem(409, "key_not_in_use");
    server.send(slower()).await.problem(409, "key_not_in_use");
    let admin = server.get("/keys").await.expect(200).json()["keys"][0]["id"].clone();
    server.post_empty(&format!("/keys/{admin}/revoke")).await.problem(409, "last_admin_key");
    hidden_contents(&server).await;
    guesses(&server).await;
    too_many(&server).await;
}

fn bearer(key: &str) -> reqwest::header::HeaderMap {
    let value = format!("Bearer {key}").parse().expect("a header");
    [(reqwest::header::AUTHORIZATION, value)].into_iter().collect()
}

/// What a reader gets without contents is documented, too.
async fn hidden_contents(server: &CheckedServer<'_>) {
    let event = json!({"title": "t", "tags": "a", "payload": {"card": 17}});
    let id = server.post("/events", &event).await.expect(201).json()["id"].clone();
    let reader = server.app.make_key(json!({"scopes": ["read"]})).await;
    for path in [format!("/events/{id}?include_logs=true"), "/events".into(), "/logs".into()] {
        server.send(server.request("GET", &path).headers(bearer(&reader.key))).await.expect(200);
    }
    let shown = server.send(server.request("GET", &format!("/events/{id}")).headers(bearer(&reader.key))).await.json();
    assert_eq!(shown["payload"], Value::Null);
}

async fn guesses(server: &CheckedServer<'_>) {
    let guess = || bearer(ApiKey::generate().expect("random bytes").as_text());
    for _ in 0..10 + 5 {
        server.send(server.request("GET", "/events").headers(guess())).await.problem(401, "unauthenticated");
    }
    server.send(server.request("GET", "/events").headers(guess())).await.problem(429, "too_many_guesses");
}

async fn too_many(server: &CheckedServer<'_>) {
    let fill = "INSERT INTO waybill.api_keys (name, scopes, created_at) \
         SELECT 'k' || n, '{read}', now() FROM generate_series(1, 1000) n";
    database::execute(&server.app.url, fill).await;
    server.post("/keys", &json!({"name": "one more", "scopes": ["read"]})).await.problem(409, "too_many_keys");
}
