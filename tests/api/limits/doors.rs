//! Which requests are limited: those that publish, and no others.

use serde_json::json;

use super::{limit, publish, publish_many, refused, stored};
use crate::support::{App, Reply};

const RATE: &str = "publishes_per_second";

#[tokio::test(flavor = "multi_thread")]
async fn all_ways_to_publish_take_from_the_same_rate() {
    let app = App::with_fixed_clock().await;
    let source = app.source(json!({"verify": {"scheme": "none"}})).await;
    limit(&app, "default", json!({RATE: 5})).await;
    let webhook = |key: &str| json!({"idempotency_key": key, "event_type": "order.paid", "payload": {}});
    let cloud_event = async || {
        let event = json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "order.paid"});
        let request =
            app.client.post(format!("{}/events", app.base)).header("content-type", "application/cloudevents+json");
        Reply::of(request.body(event.to_string()).send().await.expect("a response")).await
    };
    publish(&app).await.expect(201);
    publish_many(&app, 1).await.expect(201);
    let reply = app.post("/webhooks", &webhook("1")).await.expect(202);
    assert_eq!(reply.header("ratelimit"), Some(r#""publish";r=2;t=1"#));
    let reply = app.send_webhook(&source, &[("content-type", "application/json")], "{}").await.expect(202);
    assert_eq!(reply.header("ratelimit"), Some(r#""publish";r=1;t=1"#));
    let reply = cloud_event().await.expect(201);
    assert_eq!(reply.header("ratelimit"), Some(r#""publish";r=0;t=1"#));
    refused(publish(&app).await, RATE, "namespace");
    refused(publish_many(&app, 1).await, RATE, "namespace");
    refused(app.post("/webhooks", &webhook("2")).await, RATE, "namespace");
    let reply = app.send_webhook(&source, &[("content-type", "application/json")], "{}").await;
    refused(reply, RATE, "namespace");
    refused(cloud_event().await, RATE, "namespace");
    assert_eq!(stored(&app).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_readers_are_not_refused_while_publishers_are() {
    let app = App::with_fixed_clock().await;
    limit(&app, "default", json!({RATE: 3, "waiting_events": 3, "stored_bytes": 10})).await;
    publish_many(&app, 3).await.expect(201);
    refused(publish(&app).await, "waiting_events", "namespace");
    for _ in 0..3 {
        let claim = app.claim_one("a", "w:1").await;
        let id = claim.event_id;
        app.post(&format!("/events/{id}/start"), &json!({"worker_id": "w:1"})).await.expect(200);
        app.post(&format!("/events/{id}/heartbeat"), &json!({"worker_id": "w:1"})).await.expect(200);
        let settled = app.settle_batch("w:1", &[claim.settlement("complete", json!({}))]).await;
        assert_eq!(settled[0]["accepted"], true, "{settled:?}");
    }
    for path in ["/events", "/logs", "/workers", "/usage"] {
        app.get(path).await.expect(200);
    }
}
