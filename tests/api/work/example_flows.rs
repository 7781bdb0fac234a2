//! The flows of the queue's first description, with the shapes shown there: every field is present
//! with the same kind of value. Further fields may be present.

use serde_json::{Value, json};

use crate::support::work::{W1, W2, entry_of, time};
use crate::support::{App, ledger};

/// Asserts that `answer` has everything that `example` has. Where `example` has a timestamp, a
/// number or a text, `answer` may have any timestamp, number or text.
#[track_caller]
fn assert_shape(answer: &Value, example: &Value) {
    match (answer, example) {
        (Value::Object(answer), Value::Object(example)) => {
            for (name, value) in example {
                assert_shape(answer.get(name).unwrap_or_else(|| panic!("{name} is missing in {answer:?}")), value);
            }
        }
        (Value::Array(answer), Value::Array(example)) => {
            assert_eq!(answer.len(), example.len(), "{answer:?}");
            answer.iter().zip(example).for_each(|(answer, example)| assert_shape(answer, example));
        }
        (Value::String(_), Value::String(text)) if text.ends_with('Z') => {
            time(answer);
        }
        (Value::Number(_), Value::Number(_)) | (Value::String(_), Value::String(_)) => {}
        (answer, example) => assert_eq!(answer, example),
    }
}

fn email() -> Value {
    json!({
        "title": "Send Email Notification",
        "description": "Send welcome email to new user",
        "tags": "email,priority-high,notification",
        "payload": {
            "user_id": 12345,
            "email": "user@example.com",
            "template": "welcome",
            "variables": {"name": "Alice", "signup_date": "2025-12-24"}
        }
    })
}

/// Returns the example event in the state given.
fn email_in(state: Value) -> Value {
    let mut example = email();
    let state = state.as_object().expect("an object").clone();
    example.as_object_mut().expect("an object").extend(state);
    example
}

#[tokio::test(flavor = "multi_thread")]
async fn creating_a_job() {
    let app = App::start().await;
    let reply = app.post("/events", &email()).await.expect(201);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let event = reply.json();
    assert_shape(
        &event,
        &email_in(json!({
            "id": 1001, "status": "PENDING", "retry_count": 0, "max_retries": 3, "next_retry_at": null,
            "created_at": "2025-12-24T10:30:00Z", "updated_at": "2025-12-24T10:30:00Z"
        })),
    );
    assert_eq!(
        (&event["status"], &event["retry_count"], &event["max_retries"]),
        (&"PENDING".into(), &0.into(), &3.into())
    );
    for name in ["title", "description", "tags", "payload"] {
        assert_eq!(event[name], email()[name]);
    }
    assert_eq!(event["created_at"], event["updated_at"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_for_jobs() {
    let app = App::start().await;
    let id = app.publish(email()).await;
    let reply = app.get("/events/subscribe?tags=email,notification&worker_id=worker-02:8742").await.expect(200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let event = reply.json();
    assert_shape(
        &event,
        &email_in(json!({
            "id": 1001, "status": "PROCESSING", "retry_count": 0, "max_retries": 3, "created_at": "2025-12-24T10:30:00Z"
        })),
    );
    assert_eq!((&event["id"], &event["status"]), (&id.into(), &"PROCESSING".into()));
    assert_eq!(event["payload"], email()["payload"]);
    let reply = app.get("/events/subscribe?tags=email,notification&worker_id=worker-02:8742").await.expect(204);
    assert_eq!(reply.text, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn marking_success() {
    let app = App::start().await;
    let id = app.publish(email()).await;
    app.claim_one("email", W2).await;
    let report = json!({"worker_id": W2, "execution_time_ms": 1250, "status_code": 200});
    let entry = app.post(&format!("/events/{id}/complete"), &report).await.expect(200).json();
    assert_shape(
        &entry,
        &json!({
            "event_id": 1001, "worker_id": "worker-02:8742", "action": "COMPLETED", "status_code": 200,
            "execution_time_ms": 1250, "created_at": "2025-12-24T10:31:15Z"
        }),
    );
    assert_eq!(entry["event_id"], id);
    assert_eq!(entry["action"], "COMPLETED");
    for name in ["worker_id", "execution_time_ms", "status_code"] {
        assert_eq!(entry[name], report[name]);
    }
    let event = app.event(id).await;
    assert_eq!(event["status"], "COMPLETED");
    assert_eq!(event["updated_at"], entry["created_at"]);
    assert_eq!(event["logs"][1], entry_of(&entry));
}

#[tokio::test(flavor = "multi_thread")]
async fn reporting_a_failure_that_is_retried() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(email()).await;
    app.claim_one("email", W2).await;
    let report = json!({
        "worker_id": W2, "execution_time_ms": 5000, "status_code": 500,
        "error_message": "Connection timeout: mail server unreachable. Will retry."
    });
    let entry = app.post(&format!("/events/{id}/fail"), &report).await.expect(200).json();
    assert_shape(
        &entry,
        &json!({
            "event_id": 1001, "worker_id": "worker-02:8742", "action": "FAILED", "status_code": 500,
            "error_message": "Connection timeout: mail server unreachable. Will retry.",
            "execution_time_ms": 5000, "retry_scheduled": true,
            "next_retry_at": "2025-12-24T10:36:15Z", "created_at": "2025-12-24T10:31:15Z"
        }),
    );
    for name in ["worker_id", "execution_time_ms", "status_code", "error_message"] {
        assert_eq!(entry[name], report[name]);
    }
    assert_eq!((time(&entry["next_retry_at"]) - time(&entry["created_at"])).num_seconds(), 300);
    let event = app.event(id).await;
    assert_eq!((&event["status"], &event["retry_count"]), (&"PENDING".into(), &1.into()));
    assert_eq!(event["next_retry_at"], entry["next_retry_at"]);
    assert_eq!(event["last_error"], report["error_message"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_attempts_and_then_the_400() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(email()).await;
    for _ in 0..2 {
        app.claim_one("email", W2).await;
        assert_eq!(app.fail(id, W2).await.expect(200).json()["retry_scheduled"], true);
        app.advance_and_promote(300).await;
    }
    app.claim_one("email", W2).await;
    let body = app.fail(id, W2).await.problem(400, "max_retries_exceeded");
    assert_eq!(body["error"], "Max retries exceeded");
    assert_eq!((&body["retry_count"], &body["max_retries"]), (&3.into(), &3.into()));
    let event = app.event(id).await;
    assert_eq!((&event["status"], &event["retry_count"]), (&"FAILED".into(), &3.into()));
    assert!(event["next_retry_at"].is_null());
    assert_eq!(app.actions(id).await, ["PICKED", "FAILED", "PICKED", "FAILED", "PICKED", "FAILED"]);
    app.advance_and_promote(300).await;
    assert!(app.claim("email", W2).await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_an_event_with_its_log() {
    let app = App::start().await;
    let id = app.publish(email()).await;
    app.claim_one("email", W2).await;
    let report = json!({"worker_id": W2, "execution_time_ms": 1250, "status_code": 200});
    app.post(&format!("/events/{id}/complete"), &report).await.expect(200);
    let example = email_in(json!({
        "id": 1001, "status": "COMPLETED", "retry_count": 0, "max_retries": 3, "next_retry_at": null,
        "created_at": "2025-12-24T10:30:00Z", "updated_at": "2025-12-24T10:31:15Z"
    }));
    let plain = app.get(&format!("/events/{id}")).await.expect(200).json();
    assert_shape(&plain, &example);
    assert!(plain.get("logs").is_none());
    let event = app.event(id).await;
    assert_shape(&event, &example);
    assert_shape(
        &event["logs"],
        &json!([
            {"id": 5001, "worker_id": "worker-02:8742", "action": "PICKED", "created_at": "2025-12-24T10:30:45Z"},
            {"id": 5002, "worker_id": "worker-02:8742", "action": "COMPLETED", "status_code": 200,
             "execution_time_ms": 1250, "created_at": "2025-12-24T10:31:15Z"}
        ]),
    );
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_events() {
    let app = App::with_fixed_clock().await;
    let first = app.publish(email()).await;
    let second = app.publish(json!({"title": "Process Payment", "tags": "payment,priority-high"})).await;
    app.claim_one("email", W2).await;
    app.complete(first, W2).await.expect(200);
    app.claim_one("payment", W1).await;
    app.fail(second, W1).await.expect(200);
    let list = app.get("/events?limit=10").await.expect(200).json();
    assert_shape(
        &list,
        &json!({
            "events": [
                {"id": 1001, "title": "Send Email Notification", "status": "COMPLETED",
                 "tags": "email,priority-high,notification", "retry_count": 0,
                 "created_at": "2025-12-24T10:30:00Z", "updated_at": "2025-12-24T10:31:15Z"},
                {"id": 1002, "title": "Process Payment", "status": "PENDING",
                 "tags": "payment,priority-high", "retry_count": 1, "next_retry_at": "2025-12-24T10:36:00Z",
                 "created_at": "2025-12-24T10:25:00Z", "updated_at": "2025-12-24T10:31:00Z"}
            ],
            "total": 2, "limit": 10, "offset": 0
        }),
    );
    assert_eq!((&list["total"], &list["limit"], &list["offset"]), (&2.into(), &10.into(), &0.into()));
    assert_eq!((&list["events"][0]["status"], &list["events"][1]["status"]), (&"COMPLETED".into(), &"PENDING".into()));
    let pending = app.get("/events?status=PENDING&limit=10").await.expect(200).json();
    assert_eq!((&pending["total"], &pending["events"][0]["id"]), (&1.into(), &second.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_an_event_with_one_retry() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(email()).await;
    app.claim_one("email", W1).await;
    app.post(&format!("/events/{id}/start"), &json!({"worker_id": W1})).await.expect(200);
    let report = json!({
        "worker_id": W1, "status_code": 503, "execution_time_ms": 8000,
        "error_message": "Service unavailable, will retry"
    });
    app.post(&format!("/events/{id}/fail"), &report).await.expect(200);
    app.advance_and_promote(316).await;
    app.claim_one("email", W2).await;
    let report = json!({"worker_id": W2, "status_code": 200, "execution_time_ms": 1250});
    app.post(&format!("/events/{id}/complete"), &report).await.expect(200);
    let logs = app.event(id).await["logs"].clone();
    let example = json!([
        {"id": 5001, "event_id": 1001, "worker_id": "worker-01:7234", "action": "PICKED",
         "created_at": "2025-12-24T10:30:45Z"},
        {"id": 5002, "event_id": 1001, "worker_id": "worker-01:7234", "action": "STARTED",
         "created_at": "2025-12-24T10:30:46Z"},
        {"id": 5003, "event_id": 1001, "worker_id": "worker-01:7234", "action": "FAILED", "status_code": 503,
         "error_message": "Service unavailable, will retry", "execution_time_ms": 8000,
         "created_at": "2025-12-24T10:30:54Z"},
        {"id": 5004, "event_id": 1001, "worker_id": "worker-02:8742", "action": "PICKED",
         "created_at": "2025-12-24T10:36:10Z"},
        {"id": 5005, "event_id": 1001, "worker_id": "worker-02:8742", "action": "COMPLETED", "status_code": 200,
         "execution_time_ms": 1250, "created_at": "2025-12-24T10:36:25Z"}
    ]);
    assert_shape(&logs, &example);
    for (line, example) in logs.as_array().expect("logs").iter().zip(example.as_array().expect("an example")) {
        for name in ["worker_id", "action", "status_code", "error_message", "execution_time_ms"] {
            assert_eq!(line.get(name), example.get(name), "{name} of {line}");
        }
        assert_eq!(line["event_id"], id);
    }
    let numbers: Vec<i64> =
        logs.as_array().expect("logs").iter().map(|line| line["id"].as_i64().expect("an id")).collect();
    assert!(numbers.is_sorted());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_publishes_and_another_consumes() {
    let app = App::start().await;
    let job = json!({
        "title": "Batch Report Generation", "tags": "reporting,batch",
        "payload": {"report_type": "sales", "month": "2025-12"}
    });
    let id = app.publish(job).await;
    let event = app.claim("reporting", "worker-03:9100").await.expect("the report");
    assert_eq!((&event["id"], &event["status"]), (&id.into(), &"PROCESSING".into()));
    assert!(app.claim("payment", "worker-04:9101").await.is_none());
    let report = json!({"worker_id": "worker-03:9100", "execution_time_ms": 15000, "status_code": 200});
    app.post(&format!("/events/{id}/complete"), &report).await.expect(200);
    assert_eq!(app.status(id).await, "COMPLETED");
    assert!(app.claim("payment", "worker-04:9101").await.is_none());
}
