//! `GET /events/{id}`.

use serde_json::{Value, json};

use crate::support::App;
use crate::support::work::entry_of;

#[tokio::test(flavor = "multi_thread")]
async fn an_event_includes_its_log_only_on_request() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    app.claim("email", "w:1").await.expect("an event");
    for path in [format!("/events/{id}"), format!("/events/{id}?include_logs=false")] {
        let event = app.get(&path).await.expect(200).json();
        assert_eq!((&event["id"], event.get("logs")), (&json!(id), None), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_an_event_is_sorted_oldest_first() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("email").await;
    app.publish_tagged("email").await;
    let lease_id = app.claim("email", "w:1").await.expect("an event")["lease_id"].clone();
    app.claim("email", "w:2").await.expect("another event");
    app.advance(1);
    app.post(&format!("/events/{id}/start"), &json!({"worker_id": "w:1"})).await.expect(200);
    app.advance(1);
    let body = json!({"worker_id": "w:1", "status_code": 200, "execution_time_ms": 1250});
    let completed = app.post(&format!("/events/{id}/complete"), &body).await.expect(200).json();

    let logs = app.event(id).await["logs"].clone();
    let logs = logs.as_array().expect("logs");
    let actions: Vec<&Value> = logs.iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["PICKED", "STARTED", "COMPLETED"]);
    assert!(
        logs.iter()
            .all(|entry| entry["event_id"] == id && entry["worker_id"] == "w:1" && entry["lease_id"] == lease_id)
    );
    assert_eq!(logs[2], entry_of(&completed));
    assert_eq!(logs[2]["execution_time_ms"], 1250);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unclaimed_event_has_an_empty_log() {
    let app = App::start().await;
    let id = app.publish(json!({"event_type": "push.only"})).await;
    assert_eq!(app.event(id).await["logs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settled_event_shows_its_outcome() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("email").await;
    let held = app.claim("email", "w:1").await.expect("an event");
    assert_eq!((&held["status"], &held["worker_id"]), (&json!("PROCESSING"), &json!("w:1")));
    app.advance(5);
    let body = json!({"worker_id": "w:1", "result": {"sent": 1}});
    app.post(&format!("/events/{id}/complete"), &body).await.expect(200);
    let event = app.event(id).await;
    assert_eq!((&event["status"], &event["result"]), (&json!("COMPLETED"), &json!({"sent": 1})));
    assert_eq!(event["created_at"], held["created_at"]);
    let now = app.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(event["updated_at"], now);
    assert_eq!(event.get("lease_id"), None, "leases are between the server and the worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_event_is_not_found() {
    let app = App::start().await;
    for path in ["/events/1", "/events/9223372036854775807", "/events/1?include_logs=true"] {
        app.get(path).await.problem(404, "event_not_found");
    }
}
