//! Where an event came from, for operators: `published_by` and `client_address`.

use serde_json::{Value, json};

use crate::support::{App, Reply};

fn job(key: &str) -> Value {
    json!({"title": "a job", "tags": "a", "idempotency_key": key})
}

#[tokio::test(flavor = "multi_thread")]
async fn who_published_an_event_is_recorded_at_every_door() {
    let app = App::with_keys().await;
    let shop = app.holding(&app.make_key(json!({"name": "shop", "scopes": ["publish"]})).await);
    shop.post("/events/batch", &json!({"events": [job("1"), job("2")]})).await.expect(201);
    let webhook = json!({"idempotency_key": "3", "event_type": "order.paid", "payload": {}});
    shop.post("/webhooks", &webhook).await.expect(202);
    let cloud_event = |id: &str| json!({"specversion": "1.0", "id": id, "source": "/s", "type": "order.paid"});
    let send = async |headers: &[(&str, &str)], body: String| {
        let request = shop.client.post(format!("{}/events", app.base)).body(body);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Reply::of(request.send().await.expect("a response")).await.expect(201);
    };
    send(&[("content-type", "application/cloudevents+json")], cloud_event("4").to_string()).await;
    let batch = json!([cloud_event("5"), cloud_event("6")]);
    send(&[("content-type", "application/cloudevents-batch+json")], batch.to_string()).await;
    let attributes = [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/s"), ("ce-type", "order.paid")];
    send(&attributes, String::new()).await;
    let events = app.all_events().await;
    assert_eq!(events.len(), 7);
    for event in events {
        let origin = (&event["published_by"], &event["client_address"]);
        assert_eq!(origin, (&json!("shop"), &json!("127.0.0.1")), "{event}");
    }
}
