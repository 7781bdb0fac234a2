//! Types hold at every door through which events come in.

use serde_json::{Value, json};

use super::{declare, needs_id, stored};
use crate::support::{App, Reply};

/// A way to publish.
#[derive(Debug, Clone, Copy)]
enum Door {
    Single,
    Batch,
    Inbox,
    Source,
    Structured,
    Binary,
    Batched,
}

impl Door {
    const ALL: [Door; 7] =
        [Door::Single, Door::Batch, Door::Inbox, Door::Source, Door::Structured, Door::Binary, Door::Batched];

    /// Returns the names of the payload's `id` and of the type in a problem.
    fn names(self) -> [&'static str; 2] {
        match self {
            Door::Batch | Door::Batched => ["events[1].payload.id", "events[1].event_type"],
            _ => ["payload.id", "event_type"],
        }
    }

    /// Sends an event of a type with a payload, as the second of two if the door takes several.
    async fn send(self, app: &App, event_type: &str, payload: Value) -> Reply {
        let event = |payload: &Value| json!({"event_type": event_type, "payload": payload});
        let cloud_event = |id: &str, data: &Value| json!({"specversion": "1.0", "id": id, "source": "/s", "type": event_type, "data": data});
        let fine = json!({"event_type": "note"});
        match self {
            Door::Single => app.post("/events", &event(&payload)).await,
            Door::Batch => app.post("/events/batch", &json!({"events": [fine, event(&payload)]})).await,
            Door::Inbox => {
                let webhook = json!({"idempotency_key": "k", "event_type": event_type, "payload": payload});
                app.post("/webhooks", &webhook).await
            }
            Door::Source => {
                let fields = json!({"verify": {"scheme": "none"}, "event_type_from": {"header": "X-Kind"}});
                let source = app.source(fields).await;
                let headers = [("content-type", "application/json"), ("x-kind", event_type)];
                app.send_webhook(&source, &headers, payload.to_string()).await
            }
            Door::Structured => {
                let headers = [("content-type", "application/cloudevents+json")];
                post_cloud_events(app, &headers, cloud_event("1", &payload)).await
            }
            Door::Binary => {
                let headers = [
                    ("content-type", "application/json"),
                    ("ce-specversion", "1.0"),
                    ("ce-id", "2"),
                    ("ce-source", "/s"),
                    ("ce-type", event_type),
                ];
                post_cloud_events(app, &headers, payload).await
            }
            Door::Batched => {
                let fine = json!({"specversion": "1.0", "id": "3", "source": "/s", "type": "note"});
                let headers = [("content-type", "application/cloudevents-batch+json")];
                post_cloud_events(app, &headers, json!([fine, cloud_event("4", &payload)])).await
            }
        }
    }
}

async fn post_cloud_events(app: &App, headers: &[(&str, &str)], body: Value) -> Reply {
    let request = app.client.post(format!("{}/events", app.base)).body(body.to_string());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    Reply::of(request.send().await.expect("a response")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_checked_at_every_door() {
    let app = App::start().await;
    declare(&app, needs_id()).await;
    for door in Door::ALL {
        let before = stored(&app).await;
        door.send(&app, "order.paid", json!({"id": "x"})).await.names(&[door.names()[0]]);
        assert_eq!(stored(&app).await, before, "{door:?}");
        let reply = door.send(&app, "order.paid", json!({"id": 7})).await;
        assert!([201, 202].contains(&reply.status), "{door:?}: {reply:?}");
        assert!(stored(&app).await > before, "{door:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_type_is_refused_at_every_door_of_a_strict_namespace() {
    let app = App::start().await;
    for name in ["order.paid", "note"] {
        app.put(&format!("/event-types/{name}"), &json!({})).await.expect(201);
    }
    app.patch("/namespaces/default", &json!({"settings": {"strict_event_types": true}})).await.expect(200);
    for door in Door::ALL {
        let before = stored(&app).await;
        door.send(&app, "order.lost", json!({})).await.names(&[door.names()[1]]);
        assert_eq!(stored(&app).await, before, "{door:?}");
        let reply = door.send(&app, "order.paid", json!({})).await;
        assert!([201, 202].contains(&reply.status), "{door:?}: {reply:?}");
    }
}
