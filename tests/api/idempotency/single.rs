use serde_json::json;

use super::{events, job, publish_with};
use crate::support::process::waybill;
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_published_again_is_returned_in_its_present_state() {
    let app = App::start().await;
    let first = app.post("/events", &job("k")).await.expect(201);
    assert_eq!((first.json()["repeated"].clone(), first.header("idempotent-replayed")), (json!(false), None));
    let id = first.json()["id"].as_i64().expect("an id");
    app.claim("a", "w:1").await.expect("the event");
    app.complete(id, "w:1").await.expect(200);
    let again = app.post("/events", &job("k")).await.expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("location"), Some(format!("/events/{id}").as_str()));
    let again = again.json();
    assert_eq!((&again["id"], &again["status"], &again["repeated"]), (&json!(id), &json!("COMPLETED"), &json!(true)));
    assert_eq!(again["payload"], json!({"n": 1}));
    assert_eq!(events(&app).await, 1);
    assert_eq!(app.engine().metrics().events_repeated.get(), 1);
    assert_eq!(app.engine().metrics().events_received.get(), 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_taken_from_either_header_or_either_field() {
    let app = App::start().await;
    let plain = json!({"title": "a job", "tags": "a"});
    publish_with(&app, "Idempotency-Key", "\"k 1\"", &plain).await.expect(201);
    publish_with(&app, "idempotency-key", " \"k 1\" ", &plain).await.expect(200);
    publish_with(&app, "X-Idempotency-Key", "k 1", &plain).await.expect(200);
    for field in ["idempotency_key", "event_id"] {
        let mut event = plain.clone();
        event[field] = json!("k 1");
        app.post("/events", &event).await.expect(200);
        publish_with(&app, "Idempotency-Key", "k 1", &event).await.expect(200);
        publish_with(&app, "Idempotency-Key", "other", &event).await.names(&["Idempotency-Key"]);
    }
    let both = json!({"title": "a job", "tags": "a", "idempotency_key": "x", "event_id": "y"});
    app.post("/events", &both).await.names(&["event_id"]);
    publish_with(&app, "Idempotency-Key", "\"open", &plain).await.names(&["Idempotency-Key"]);
    publish_with(&app, "Idempotency-Key", &"x".repeat(256), &plain).await.names(&["Idempotency-Key"]);
    assert_eq!(events(&app).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_with_another_content_is_refused() {
    let app = App::start().await;
    let id = app.publish(job("k")).await;
    for (field, value) in [("title", json!("another")), ("payload", json!({"n":  2})), ("priority", json!(1))] {
        let mut other = job("k");
        other[field] = value;
        let problem = app.post("/events", &other).await.problem(422, "idempotency_key_reused");
        assert_eq!((&problem["retryable"], &problem["effect"]), (&json!(false), &json!("none")));
    }
    // Neither the order of fields nor a field with its default value is another content.
    let same = r#"{"priority": 0, "idempotency_key": "k", "payload": {"n":1}, "tags": ["a"], "title": "a job"}"#;
    assert_eq!(app.post_text("/events", same).await.expect(200).json()["id"], id);
    assert_eq!(events(&app).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_belongs_to_its_namespace() {
    let app = App::start().await;
    let (one, other) = (app.namespace("one").await, app.namespace("other").await);
    let ids = [one.publish(job("k")).await, other.publish(job("k")).await];
    assert_ne!(ids[0], ids[1]);
    assert_eq!(one.post("/events", &job("k")).await.expect(200).json()["id"], ids[0]);
    let mut changed = job("k");
    changed["title"] = json!("another");
    app.post("/events", &changed).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_event_with_an_ordering_key_is_not_stored_again() {
    let app = App::start().await;
    let keyed = json!({"title": "a job", "tags": "a", "ordering_key": "o", "idempotency_key": "k"});
    let id = app.publish(keyed.clone()).await;
    assert_eq!(app.post("/events", &keyed).await.expect(200).json()["id"], id);
    assert_eq!(app.claim("a", "w:1").await.expect("the event")["id"], id);
    app.complete(id, "w:1").await.expect(200);
    assert!(app.claim("a", "w:1").await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_published_an_event_is_shown_to_operators_alone() {
    let app = App::with_keys().await;
    let publisher = app.make_key(json!({"name": "shop", "scopes": ["publish"]})).await;
    let id = app.holding(&publisher).publish(job("k")).await;
    let seen = app.event(id).await;
    assert_eq!((&seen["published_by"], &seen["client_address"]), (&json!("shop"), &json!("127.0.0.1")));
    assert_eq!(seen["idempotency_key"], "k");
    let read = app.holder_of("read").await.event(id).await;
    for field in ["published_by", "client_address", "idempotency_key"] {
        assert!(read.get(field).is_none(), "{field}");
    }
    let operate = app.make_key(json!({"name": "ops", "scopes": ["read", "operate"]})).await;
    assert_eq!(app.holding(&operate).event(id).await["published_by"], "shop");
    // The publisher has sent the payload, but what became of it is not for publishers.
    let again = app.holding(&publisher).post("/events", &job("k")).await.expect(200).json();
    assert_eq!((&again["id"], &again["payload"], again.get("published_by")), (&json!(id), &json!(null), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_generator_sends_a_new_key_with_each_event() {
    let app = App::start().await;
    let bench = |workload: &str| {
        let load = ["--workload", workload, "--connections", "2", "--seconds", "1", "--idempotency-keys", "--json"];
        tokio::task::block_in_place(|| waybill(&["bench", "--url", &app.base]).args(load).output().expect("it runs"))
    };
    let output = bench("publish");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stored = events(&app).await;
    assert!(stored > 0);
    assert_eq!(app.count("SELECT count(*) FROM waybill.idempotency_keys").await, stored);
    assert!(!bench("life").status.success());
}
