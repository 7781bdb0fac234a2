//! What no span contains.

use serde_json::json;

use super::Collector;
use crate::support::receiver::{Receiver, Recorded};
use crate::support::until;

fn contains(request: &Recorded, needle: &str) -> bool {
    request.body.windows(needle.len()).any(|part| part == needle.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_span_contains_a_body_a_key_a_query_or_a_token() {
    let (collector, receiver) = (Collector::start().await, Receiver::start().await);
    let app = collector.app(&[]).await.with_admin_key().await;
    let key = app.make_key(json!({"scopes": ["admin"]})).await;
    let caller = app.holding(&key);
    let hook = receiver.url("/hook/needle-path?needle-url-query=1");
    caller.subscribe(&hook, json!({"headers": {"x-a": "needle-header"}})).await;
    let source = caller.source(json!({"verify": {"scheme": "none"}})).await;
    let path = source["path"].as_str().expect("a path");
    let taken = caller.send_webhook_to(&format!("{path}?needle-query"), &[], r#"{"a":"needle-webhook"}"#).await;
    assert!((200..300).contains(&taken.status), "{taken:?}");
    let event = json!({"title": "needle-title", "event_type": "t", "tags": "needle-tag", "payload": "needle-payload"});
    let id = caller.publish(event).await;
    caller.claim("needle-tag", "needle-worker:1").await.expect("an event");
    let done = json!({"worker_id": "needle-worker:1", "result": "needle-result"});
    caller.post(&format!("/events/{id}/complete"), &done).await.expect(200);
    caller.get("/events?text=needle-search").await.expect(200);
    collector.until_named("GET /events").await;
    collector.until_count("push", 2).await;
    until("all is sent", async || collector.receiver.in_flight() == 0).await;
    let requests = collector.receiver.so_far();
    assert!(requests.iter().any(|request| contains(request, "/in/…")), "the webhook was traced");
    let token = path.rsplit('/').next().expect("a token");
    for needle in ["needle", &key.key, token] {
        assert!(!requests.iter().any(|request| contains(request, needle)), "{needle} in {requests:?}");
    }
}
