//! Large payloads are checked on threads of their own.

use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::{declare, pay, stored};
use crate::support::{App, Options, within_patience};

/// Takes all slots for large checks, so that a test sees what does not need one.
async fn hold_slots(app: &App) -> OwnedSemaphorePermit {
    let slots = app.engine().schema_slots().clone();
    let count = slots.available_permits() as u32;
    slots.acquire_many_owned(count).await.expect("the semaphore is never closed")
}

fn numbers(count: usize) -> Value {
    json!((0..count).collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_of_the_same_thread_go_on_while_a_large_payload_is_checked() {
    let flags = vec!["--http-workers".to_owned(), "1".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    declare(&app, json!({"items": {"type": "integer"}})).await;
    let held = hold_slots(&app).await;
    let publish = |payload: Value| {
        let request = app.client.post(format!("{}/events", app.base));
        let request = request.json(&json!({"event_type": "order.paid", "payload": payload}));
        tokio::spawn(async move { request.send().await.expect("a response").status().as_u16() })
    };
    let large = publish(numbers(10_000));
    for _ in 0..20 {
        pay(&app, numbers(100)).await.expect(201);
        app.get("/events?limit=1").await.expect(200);
    }
    assert!(!large.is_finished());
    assert_eq!(stored(&app).await, 20);
    drop(held);
    assert_eq!(within_patience(large).await.expect("no panic"), 201);
    assert_eq!(stored(&app).await, 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_of_small_payloads_and_a_deep_payload_need_a_thread_too() {
    let app = App::start().await;
    declare(&app, json!({"$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"})).await;
    let held = hold_slots(&app).await;
    pay(&app, json!([[1]])).await.expect(201);
    let events: Vec<Value> = (0..100).map(|_| json!({"event_type": "order.paid", "payload": numbers(100)})).collect();
    let deep = (0..120).fold(json!(1), |inner, _| json!([inner]));
    let bodies = [
        ("/events/batch", json!({"events": events})),
        ("/events", json!({"event_type": "order.paid", "payload": deep})),
    ];
    let publishing = bodies.map(|(path, body)| {
        let request = app.client.post(format!("{}{path}", app.base)).json(&body);
        tokio::spawn(async move { request.send().await.expect("a response").status().as_u16() })
    });
    for _ in 0..20 {
        pay(&app, json!([[2]])).await.expect(201);
    }
    assert!(publishing.iter().all(|publish| !publish.is_finished()));
    drop(held);
    for publish in publishing {
        assert_eq!(within_patience(publish).await.expect("no panic"), 201);
    }
    assert_eq!(stored(&app).await, 122);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_payload_is_refused_with_path_and_rule() {
    let app = App::start().await;
    declare(&app, json!({"items": {"type": "integer"}})).await;
    let mut payload = numbers(20_000);
    payload[19_999] = json!("x");
    pay(&app, payload).await.names(&["payload[19999]"]);
}
