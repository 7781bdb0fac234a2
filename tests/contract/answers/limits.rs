//! Publishes that are subject to a rate: every success says where the rate stands.

use serde_json::json;

use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::{App, Reply};

pub(super) async fn run(coverage: &Coverage) {
    let server = CheckedServer::of(App::start().await, coverage);
    let plain = json!({"name": "plain", "verify": {"scheme": "none"}});
    let plain = server.post("/sources", &plain).await.expect(201).json();
    let ok = json!({"name": "ok", "verify": {"scheme": "none"}, "respond": {"status": 200}});
    let ok = server.post("/sources", &ok).await.expect(201).json();
    let limits = json!({"settings": {"limits": {"publishes_per_second": 1000}}});
    server.send(server.request("PATCH", "/namespaces/default").json(&limits)).await.expect(200);
    let event = json!({"title": "t", "tags": "a", "idempotency_key": "k"});
    let webhook = json!({"idempotency_key": "k", "event_type": "t"});
    for (status, path, body) in [
        (201, "/events", &event),
        (200, "/events", &event),
        (201, "/events/batch", &json!({"events": [event]})),
        (202, "/webhooks", &webhook),
        (200, "/webhooks", &webhook),
        (202, plain["path"].as_str().expect("a path"), &json!({})),
        (200, ok["path"].as_str().expect("a path"), &json!({})),
    ] {
        assert_has_rate(&server.post(path, body).await.expect(status));
    }
}

#[track_caller]
fn assert_has_rate(reply: &Reply) {
    assert_eq!(reply.header("ratelimit-policy"), Some("\"publish\";q=1000;w=1"), "{reply:?}");
    assert!(reply.header("ratelimit").is_some_and(|state| state.starts_with("\"publish\";r=")), "{reply:?}");
}
