//! `POST /subscriptions/check`: what a subscription would do with an event.

use serde_json::{Value, json};

use crate::support::App;
use crate::support::receiver::Receiver;

async fn paid_order(app: &App) -> i64 {
    let event = json!({
        "title": "x", "event_type": "order.paid", "tags": "shop", "labels": {"region": "eu"},
        "payload": {"order": 17, "amount": 99.9, "card": {"number": "4242"}},
    });
    app.publish(event).await
}

async fn check(app: &App, event_id: i64, mut settings: Value) -> Value {
    settings["event_id"] = event_id.into();
    app.post("/subscriptions/check", &settings).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_names_the_first_setting_that_the_event_does_not_satisfy() {
    let app = App::start().await;
    let id = paid_order(&app).await;
    let all = json!({
        "event_types": ["order.*"], "tags": ["shop"], "labels": {"region": "eu"}, "filter": {"payload.amount": {"$gt": 10}},
    });
    let outcome = check(&app, id, all).await;
    assert_eq!((&outcome["matches"], &outcome["reason"]), (&json!(true), &Value::Null));
    assert_eq!((&outcome["event_id"], &outcome["redacted"]), (&json!(id), &json!(false)));
    for (settings, reason) in [
        (json!({"event_types": ["user.*"], "tags": ["other"]}), "event_types"),
        (json!({"tags": ["other"]}), "tags"),
        (json!({"labels": {"region": "us"}}), "labels"),
        (json!({"filter": {"payload.amount": {"$lt": 10}}}), "filter"),
    ] {
        let outcome = check(&app, id, settings).await;
        assert_eq!((&outcome["matches"], &outcome["reason"]), (&json!(false), &json!(reason)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_shows_the_body_that_a_receiver_would_get() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let transform = json!({"drop": ["card"], "envelope": true});
    app.subscribe(&receiver.url("/hook"), json!({"transform": transform})).await;
    let id = paid_order(&app).await;
    let sent = receiver.received(1).await.remove(0);
    let outcome = check(&app, id, json!({"transform": transform})).await;
    assert_eq!(outcome["body"], sent.text());
    assert_eq!(outcome["content_type"].as_str(), sent.header("content-type"));
    assert_eq!(check(&app, id, json!({"transform": null})).await["content_type"], "application/json");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_why_there_is_no_body_and_where_a_setting_is_wrong() {
    let app = App::start().await;
    let id = paid_order(&app).await;
    let outcome = check(&app, id, json!({"transform": {"template": "{{ payload.order }} is no object {"}})).await;
    assert_eq!((&outcome["body"], &outcome["content_type"]), (&Value::Null, &Value::Null));
    assert!(outcome["body_error"].as_str().expect("a reason").contains("did not make JSON"), "{outcome}");
    let wrong = json!({"event_id": id, "filter": {"payload.a": {"$gt": true}}, "transform": {"template": "{% if %}"}});
    let problem = app.post("/subscriptions/check", &wrong).await.problem(400, "invalid_request");
    let fields: Vec<&Value> =
        problem["errors"].as_array().expect("errors").iter().map(|error| &error["field"]).collect();
    assert_eq!(fields, [&json!("filter.payload.a.$gt"), &json!("transform.template")]);
    app.post("/subscriptions/check", &json!({"event_id": id, "url": "http://a"})).await.problem(400, "invalid_request");
    app.post("/subscriptions/check", &json!({})).await.problem(400, "invalid_request");
    app.post("/subscriptions/check", &json!({"event_id": 999})).await.problem(404, "event_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_stores_and_sends_nothing() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let id = paid_order(&app).await;
    check(&app, id, json!({"transform": {"template": "{{ payload.order }}"}})).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.subscriptions").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries").await, 1, "the event's own");
    assert_eq!(receiver.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hidden_is_hidden_from_the_filter_and_the_template_as_well() {
    let app = App::with_keys().await;
    let id = paid_order(&app).await;
    let guess = json!({
        "filter": {"payload.card.number": "4242"}, "transform": {"template": "{{ payload.card.number }}", "content_type": "text/plain"},
    });
    assert_eq!(check(&app, id, guess.clone()).await["body"], "4242");
    let operator = app.make_key(json!({"scopes": ["operate"]})).await;
    let operator = app.holding(&operator);
    let outcome = check(&operator, id, guess.clone()).await;
    assert_eq!(
        (&outcome["matches"], &outcome["body"], &outcome["redacted"]),
        (&json!(false), &Value::Null, &json!(true))
    );
    assert_eq!(outcome["hidden"], json!(["body", "body_error"]));
    assert_eq!(check(&operator, id, json!({"event_types": ["order.paid"]})).await["matches"], true);
    app.patch("/namespaces/default", &json!({"settings": {"redact": ["payload.card.*"]}})).await.expect(200);
    let outcome = check(&app, id, guess).await;
    assert_eq!((&outcome["matches"], &outcome["body"]), (&json!(false), &json!("[redacted]")));
    assert_eq!(outcome["redacted"], true);
    app.holder_of("read").await.post("/subscriptions/check", &json!({"event_id": id})).await.expect(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_reads_too_much_does_not_match() {
    let app = App::start().await;
    let id = app.publish(json!({"event_type": "a", "payload": {"text": "x".repeat(500_000)}})).await;
    let condition = json!({"payload.text": {"$contains": format!("{}y", "x".repeat(50))}});
    let many: Vec<Value> = (0..100).map(|_| json!({"$not": condition})).collect();
    let outcome = check(&app, id, json!({"filter": {"$and": many}})).await;
    assert_eq!((&outcome["matches"], &outcome["reason"]), (&json!(false), &json!("filter_over_budget")));
}
