//! How long keys are kept.

use serde_json::json;

use super::job;
use crate::support::retention::DAY;
use crate::support::{App, Options, database};

async fn completed(app: &App, key: &str) -> i64 {
    let id = app.publish(job(key)).await;
    app.claim("a", "w:1").await.expect("the event");
    app.complete(id, "w:1").await.expect(200);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_free_again_after_a_day() {
    let app = App::with_fixed_clock().await;
    let id = completed(&app, "k").await;
    app.advance(DAY - 60);
    app.remove_old().await;
    app.post("/events", &job("k")).await.expect(200);
    app.advance(120);
    assert_eq!(app.remove_old().await["idempotency_keys"], 1);
    let again = app.post("/events", &job("k")).await.expect(201).json();
    assert_ne!(again["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_outlives_an_event_that_is_removed_sooner() {
    let flags = vec!["--idempotency-retention=60d".to_owned()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    let id = completed(&app, "k").await;
    let created_at = app.event(id).await["created_at"].clone();
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 1);
    assert!(!app.has_event(id).await);
    let reply = app.post("/events", &job("k")).await.expect(200);
    assert_eq!(reply.header("idempotent-replayed"), Some("true"));
    let expected =
        json!({"id": id, "status": "COMPLETED", "created_at": created_at, "repeated": true, "removed": true});
    assert_eq!(reply.json(), expected);
    let batch = app.post("/events/batch", &json!({"events": [job("k")]})).await.expect(201).json();
    assert_eq!((&batch["events"][0]["status"], &batch["events"][0]["repeated"]), (&json!("COMPLETED"), &json!(true)));
    let mut other = job("k");
    other["title"] = json!("another");
    app.post("/events", &other).await.problem(422, "idempotency_key_reused");
}

/// A key may be removed between the statement that finds it and the one that reads the state of its event.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_event_has_its_present_state_even_if_its_key_has_just_been_removed() {
    let app = App::start().await;
    let webhook = json!({"idempotency_key": "k", "event_type": "t"});
    let received = app.post("/webhooks", &webhook).await.expect(202).json();
    let published = app.post("/events", &job("k")).await.expect(201).json();
    let remove_keys = "CREATE FUNCTION remove_keys() RETURNS trigger LANGUAGE plpgsql AS \
                       $$ BEGIN DELETE FROM waybill.idempotency_keys; RETURN NULL; END $$; \
                       CREATE TRIGGER remove_keys AFTER INSERT ON waybill.events \
                       FOR EACH STATEMENT EXECUTE FUNCTION remove_keys()";
    let restore = "INSERT INTO waybill.idempotency_keys SELECT * FROM kept";
    database::execute(&app.url, "CREATE TABLE kept AS SELECT * FROM waybill.idempotency_keys").await;
    database::execute(&app.url, remove_keys).await;
    let batch = app.post("/events/batch", &json!({"events": [job("k")]})).await.expect(201).json();
    assert_eq!(batch["events"][0]["status"], "PENDING");
    assert_eq!(app.count("SELECT count(*) FROM waybill.idempotency_keys").await, 0);
    database::execute(&app.url, restore).await;
    let again = app.post("/events", &job("k")).await.expect(200).json();
    assert_eq!((&again["id"], &again["status"]), (&published["id"], &json!("PENDING")));
    database::execute(&app.url, restore).await;
    let again = app.post("/webhooks", &webhook).await.expect(200).json();
    assert_eq!((&again["id"], &again["status"]), (&received["id"], &json!("PENDING")));
}
