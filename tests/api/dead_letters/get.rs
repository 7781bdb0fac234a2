//! `GET /dead-letters/{id}`: the event and the subscription as they were when the push failed.

use serde_json::json;
use waybill::background::subscription_drainer;

use crate::support::receiver::Receiver;
use crate::support::work::time;
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_unchanged_after_its_subscription_was_changed_and_deleted() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let settings = json!({
        "name": "billing", "event_types": ["order.*"], "max_attempts": 1, "headers": {"Authorization": "Bearer s3cret"},
    });
    let subscription = app.subscribe(&receiver.url("/old"), settings).await;
    // Spelled in a way that no serialiser would choose.
    let published = r#"{"event_type": "order.paid", "labels": {"a": "b"}, "payload": {"z": 1.0,  "a": [ 1e2 ]}}"#;
    receiver.next(crate::support::receiver::Reply::status(500).body("no"));
    let event = app.post_text("/events", published).await.expect(201).json()["id"].as_i64().unwrap();
    app.until_delivery(app.only_delivery(event).await, "FAILED").await;
    let before = app.open_dead_letter(event).await;

    let path = format!("/subscriptions/{}", subscription["id"]);
    let changed = json!({"url": receiver.url("/new"), "headers": {"X-New": "1"}, "name": "renamed"});
    app.patch(&path, &changed).await.expect(200);
    app.delete(&path).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");

    let reply = app.get(&format!("/dead-letters/{}", before["id"])).await.expect(200);
    assert!(reply.text.contains(r#""payload" : {"z": 1.0,  "a": [ 1e2 ]}"#), "{}", reply.text);
    assert!(!reply.text.contains("s3cret"), "{}", reply.text);
    assert!(!reply.text.contains(subscription["secret"].as_str().unwrap()), "{}", reply.text);
    let letter = reply.json();
    assert_eq!(letter, before);
    assert_eq!((&letter["event_id"], &letter["event"]["id"]), (&json!(event), &json!(event)));
    assert_eq!(letter["event"]["labels"], json!({"a": "b"}));
    assert_eq!((&letter["subscription_id"], &letter["subscription_version"]), (&subscription["id"], &json!(1)));
    assert_eq!(letter["subscription"]["url"], receiver.url("/old"));
    assert_eq!(letter["subscription"]["header_names"], json!(["Authorization"]));
    assert_eq!(letter["subscription"].get("headers"), None);
    assert_eq!((&letter["reason"], &letter["detail"]), (&json!("exhausted"), &json!("the receiver answered 500")));
    let attempt = &letter["attempts"][0];
    assert_eq!((&attempt["attempt"], &attempt["status_code"]), (&json!(1), &json!(500)));
    assert_eq!((&attempt["response_excerpt"], &attempt["subscription_version"]), (&json!("no"), &json!(1)));
    assert!(time(&attempt["started_at"]) <= time(&letter["created_at"]));
    for nothing in ["actor", "replay"] {
        assert_eq!(letter.get(nothing), Some(&json!(null)), "{nothing}");
    }
    let recorded = app.delivery(letter["delivery_id"].as_i64().unwrap()).await;
    assert_eq!(recorded["attempts"], letter["attempts"], "the delivery and the dead letter show the same attempts");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_dead_letter_is_not_found() {
    let app = App::start().await;
    let event = app.publish_tagged("a").await;
    for id in [event, 4711] {
        app.get(&format!("/dead-letters/{id}")).await.problem(404, "dead_letter_not_found");
    }
}
