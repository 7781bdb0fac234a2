//! `strict_event_types`: a namespace accepts only declared types.

use serde_json::{Value, json};

use super::{ORDER_PAID, pay, stored};
use crate::support::receiver::{Receiver, Reply as Answer};
use crate::support::{App, until};

async fn set_strict(app: &App, namespace: &str, is_strict: Value) {
    let settings = json!({"settings": {"strict_event_types": is_strict}});
    app.patch(&format!("/namespaces/{namespace}"), &settings).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_types_are_refused_by_name_while_the_namespace_is_strict() {
    let app = App::start().await;
    let north = app.namespace("north").await;
    north.put(ORDER_PAID, &json!({})).await.expect(201);
    let other = json!({"event_type": "order.lost"});
    north.post("/events", &other).await.expect(201);
    set_strict(&app, "north", json!(true)).await;
    north.post("/events", &other).await.names(&["event_type"]);
    let batch = json!({"events": [{"event_type": "order.paid"}, other, {"title": "t", "tags": "a"}]});
    north.post("/events/batch", &batch).await.names(&["events[1].event_type"]);
    assert_eq!(stored(&app).await, 1);
    pay(&north, json!(7)).await.expect(201);
    north.publish_tagged("a").await;
    app.post("/events", &other).await.expect(201);
    set_strict(&app, "north", json!(false)).await;
    north.post("/events", &other).await.expect(201);
    let view = app.get("/namespaces/north").await.expect(200).json();
    assert_eq!(view["settings"], json!({"strict_event_types": false}));
    for wrong in [json!("yes"), json!(1)] {
        let settings = json!({"settings": {"strict_event_types": wrong}});
        app.patch("/namespaces/north", &settings).await.names(&["settings.strict_event_types"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_can_be_created_strict() {
    let app = App::start().await;
    let strict = json!({"name": "north", "settings": {"strict_event_types": true}});
    app.post("/namespaces", &strict).await.expect(201);
    let north = app.in_namespace("north");
    north.post("/events", &json!({"event_type": "order.lost"})).await.names(&["event_type"]);
    north.put("/event-types/order.lost", &json!({})).await.expect(201);
    north.post("/events", &json!({"event_type": "order.lost"})).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_notices_are_never_refused() {
    let app = App::start().await;
    let receiver = Receiver::start().await;
    app.put(ORDER_PAID, &json!({})).await.expect(201);
    set_strict(&app, "default", json!(true)).await;
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["order.*"], "max_attempts": 1})).await;
    receiver.next(Answer::status(410));
    pay(&app, json!(1)).await.expect(201);
    let notices = "SELECT count(*) FROM waybill.events WHERE event_type LIKE 'waybill.%'";
    until("a notice is published", async || app.count(notices).await == 1).await;
}
