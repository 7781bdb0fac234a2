//! `POST /events`.

use serde_json::{Value, json};

use crate::support::{App, Reply};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Publishes with one further header.
async fn publish_with(app: &App, header: &str, value: &str, event: &Value) -> Reply {
    let request = app.client.post(format!("{}/events", app.base)).header(header, value).json(event);
    Reply::of(request.send().await.expect("a response")).await
}

/// Returns the event as it is read, with what only the response to a publish has.
async fn read_back(app: &App, published: &Value) -> Value {
    let mut event = app.get(&format!("/events/{}", published["id"])).await.expect(200).json();
    event["enqueued"] = json!(0);
    event["repeated"] = json!(false);
    let fields = event.as_object_mut().expect("an event");
    // What the response to a publish does not have.
    for (field, value) in
        [("cancel_reason", json!(null)), ("idempotency_key", json!(null)), ("published_by", json!(null))]
    {
        assert_eq!(fields.remove(field), Some(value), "{field}");
    }
    assert_eq!(fields.remove("client_address"), Some(json!("127.0.0.1")));
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn the_response_to_a_publish_is_the_whole_event_and_can_be_read_back() {
    let app = App::start().await;
    let reply = app
        .post("/events", &json!({"title": "Send Email", "tags": "email, urgent,email", "payload": {"to": "a@b.c"}}))
        .await
        .expect(201);
    let event = reply.json();
    assert_eq!(event["tags"], "email,urgent");
    assert_eq!(event["status"], "PENDING");
    assert_eq!(event["max_retries"], 3);
    assert_eq!(reply.header("location"), Some(&*format!("/events/{}", event["id"])));
    assert_eq!(read_back(&app, &event).await, event);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_location_header_of_a_publish_leads_to_the_event() {
    let app = App::start().await;
    let reply = app.post("/events", &json!({"title": "a job", "tags": "email"})).await.expect(201);
    let location = reply.header("location").expect("a location").to_owned();
    assert_eq!(app.get(&location).await.expect(200).json()["id"], reply.json()["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn omitted_fields_get_their_defaults() {
    let app = App::with_fixed_clock().await;
    let event = app.post("/events", &json!({"title": "a job", "tags": "email"})).await.expect(201).json();
    let now = app.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    let expected = json!({
        "id": event["id"], "title": "a job", "description": null, "tags": "email", "event_type": null,
        "labels": {}, "payload": null, "priority": 0, "status": "PENDING", "retry_count": 0, "max_retries": 3,
        "next_retry_at": null, "run_at": null, "expires_at": null, "ordering_key": null, "correlation_id": null,
        "traceparent": null, "worker_id": null, "cancel_requested": false, "progress": null, "result": null,
        "last_error": null, "created_at": now, "updated_at": now, "enqueued": 0, "repeated": false,
    });
    assert_eq!(event, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_optional_field_is_kept() {
    let app = App::start().await;
    let sent = json!({
        "title": "Invoice", "description": "For March", "tags": ["billing", "pdf"], "event_type": "invoice.due",
        "labels": {"region": "eu", "empty": ""}, "payload": {"n": 1}, "priority": -7, "max_retries": 1000,
        "backoff": {"strategy": "schedule", "seconds": [5, 30]}, "ordering_key": "customer-7",
        "correlation_id": "story-1", "run_at": "2099-01-31T09:30:00Z", "expires_at": "2099-01-31T12:30:00+02:00",
    });
    let event = app.post("/events", &sent).await.expect(201).json();
    for field in ["title", "description", "event_type", "labels", "payload", "priority", "max_retries"] {
        assert_eq!(event[field], sent[field], "{field}");
    }
    assert_eq!(event["tags"], "billing,pdf");
    assert_eq!((&event["ordering_key"], &event["correlation_id"]), (&json!("customer-7"), &json!("story-1")));
    assert_eq!(event["run_at"], "2099-01-31T09:30:00.000000Z");
    assert_eq!(event["expires_at"], "2099-01-31T10:30:00.000000Z");
    assert_eq!(read_back(&app, &event).await, event);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_accepted_as_a_string_or_a_list_and_returned_as_a_string() {
    let app = App::start().await;
    for tags in [json!(" b, a ,b,c "), json!([" b", "a ", "b", "c"]), json!("b,a,c"), json!(["b\n", "\ta", "c", "a"])] {
        let event = app.post("/events", &json!({"title": "a job", "tags": tags})).await.expect(201).json();
        assert_eq!(event["tags"], "b,a,c", "{tags}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_tags_are_stored_once() {
    let app = App::start().await;
    let id = app.publish(json!({"title": "a job", "tags": vec!["email"; 40]})).await;
    assert_eq!(app.event(id).await["tags"], "email");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_omitted_title_defaults_to_the_event_type() {
    let app = App::start().await;
    let event = app.post("/events", &json!({"event_type": "order.created", "tags": "orders"})).await.expect(201).json();
    assert_eq!(event["title"], "order.created");
    let event = app.post("/events", &json!({"event_type": "order.created", "title": "Order"})).await.expect(201).json();
    assert_eq!(event["title"], "Order");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_tags_is_completed_at_once() {
    let app = App::start().await;
    for tags in [json!(null), json!(""), json!([])] {
        let sent = json!({"event_type": "order.created", "tags": tags, "ordering_key": "k", "delay_seconds": 60});
        let event = app.post("/events", &sent).await.expect(201).json();
        assert_eq!((&event["status"], &event["tags"]), (&json!("COMPLETED"), &json!("")));
        assert_eq!(read_back(&app, &event).await, event);
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.ready").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_writes_no_line_to_the_log() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    assert_eq!(app.event(id).await["logs"], json!([]));
    assert_eq!(app.get("/logs").await.expect(200).json()["logs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_counts_from_when_the_event_is_stored() {
    let app = App::with_fixed_clock().await;
    let sent = json!({"title": "later", "tags": "email", "delay_seconds": 90});
    let event = app.post("/events", &sent).await.expect(201).json();
    let due = app.now() + chrono::TimeDelta::seconds(90);
    assert_eq!(event["run_at"], due.to_rfc3339_opts(chrono::SecondsFormat::Micros, true));
    assert_eq!(event["next_retry_at"], Value::Null);
    assert!(app.claim("email", "w:1").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_a_past_time_or_no_delay_can_be_claimed_at_once() {
    let app = App::start().await;
    let past = app.publish(json!({"title": "a job", "tags": "past", "run_at": "2001-01-01T00:00:00Z"})).await;
    let zero = app.publish(json!({"title": "a job", "tags": "zero", "delay_seconds": 0})).await;
    assert_eq!(app.claim("past", "w:1").await.expect("an event")["id"], past);
    assert_eq!(app.claim("zero", "w:1").await.expect("an event")["id"], zero);
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_the_same_in_the_response_to_a_publish_and_when_read() {
    let app = App::start().await;
    let times = [
        "2030-01-31T09:30:00.123456789Z",
        "1969-12-31T23:59:59.999999999Z",
        "2016-12-31T23:59:60Z",
        "2016-12-31T23:59:60.5Z",
        "2030-01-31t09:30:00z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.9999999Z",
    ];
    for time in times {
        let sent =
            json!({"title": "timed", "tags": "timed", "run_at": "0001-01-01T00:00:00+00:01", "expires_at": time});
        let event = app.post("/events", &sent).await.expect(201).json();
        assert_eq!(read_back(&app, &event).await, event, "{time}");
        let answered = event["expires_at"].as_str().expect("a time");
        assert!(answered.len() == "2030-01-31T09:30:00.123456Z".len() && answered.ends_with('Z'), "{answered}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_form_of_backoff_is_accepted() {
    let app = App::start().await;
    let forms = [
        json!({"strategy": "fixed", "seconds": 0}),
        json!({"strategy": "fixed", "seconds": 2_592_000}),
        json!({"strategy": "exponential", "base_seconds": 5, "max_seconds": 300}),
        json!({"strategy": "exponential", "base_seconds": 5, "max_seconds": 5, "jitter": "full"}),
        json!({"strategy": "exponential", "base_seconds": 0, "max_seconds": 2_592_000, "jitter": "none"}),
        json!({"strategy": "exponential", "base_seconds": 5, "max_seconds": 9, "jitter": null, "floor_seconds": null}),
        json!({"strategy": "schedule", "seconds": [0]}),
        json!({"strategy": "schedule", "seconds": vec![5; 100]}),
    ];
    for backoff in forms {
        app.post("/events", &json!({"title": "a job", "tags": "email", "backoff": backoff})).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_events_own_backoff_decides_when_it_is_retried() {
    let app = App::with_fixed_clock().await;
    let backoff = json!({"strategy": "schedule", "seconds": [7, 70]});
    let id = app.publish(json!({"title": "a job", "tags": "email", "backoff": backoff})).await;
    app.claim("email", "w:1").await.expect("an event");
    let failed = app.fail(id, "w:1").await.expect(200).json();
    let due = app.now() + chrono::TimeDelta::seconds(7);
    assert_eq!(failed["next_retry_at"], due.to_rfc3339_opts(chrono::SecondsFormat::Micros, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_at_every_limit_is_accepted_however_it_is_spelled() {
    let app = App::start().await;
    // The longest spelling of one character: an escaped surrogate pair of twelve bytes.
    let long = |chars: usize| format!("\"{}\"", r"\ud83d\ude00".repeat(chars));
    let numbered = |n: usize, chars: usize| format!("\"{n:02}{}\"", r"\ud83d\ude00".repeat(chars - 2));
    let tags: Vec<String> = (0..32).map(|n| numbered(n, 100)).collect();
    let labels: Vec<String> = (0..32).map(|n| format!("{}:{}", numbered(n, 255), long(255))).collect();
    let body = format!(
        r#"{{"title":{short},"description":{},"event_type":{short},"ordering_key":{short},"correlation_id":{short},
            "tags":[{}],"labels":{{{}}},"payload":"{}","priority":100,"max_retries":1}}"#,
        long(10_000),
        tags.join(","),
        labels.join(","),
        "x".repeat(1024 * 1024 - 2),
        short = long(255),
    );
    let event = app.post_text("/events", &body).await.expect(201).json();
    assert_eq!(event["title"], "😀".repeat(255));
    assert_eq!(event["labels"].as_object().expect("labels").len(), 32);
    assert_eq!(app.event(event["id"].as_i64().expect("an id")).await["description"], event["description"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_text_comes_back_as_it_was_sent() {
    let app = App::start().await;
    let odd = [
        "'; DROP TABLE waybill.events; --",
        "{\"a\",NULL}",
        "NULL",
        "\\x00 \\",
        "\u{1F600}\u{202E}ü",
        "$1 %s ?",
        "<b>&amp;",
    ];
    for text in odd {
        let sent = json!({
            "title": text, "description": text, "event_type": text, "ordering_key": text, "correlation_id": text,
            "labels": {text: text}, "tags": [text.replace(',', ";")],
        });
        let event = app.post("/events", &sent).await.expect(201).json();
        for field in ["title", "description", "event_type", "ordering_key", "correlation_id", "labels"] {
            assert_eq!(event[field], sent[field], "{field}");
        }
        assert_eq!(event["tags"], sent["tags"][0]);
        assert_eq!(read_back(&app, &event).await, event);
        let ask = json!({"tags": sent["tags"], "worker_id": "w:1"});
        let claimed = app.post("/events/claim", &ask).await.expect(200).json();
        assert_eq!(claimed["events"][0]["id"], event["id"], "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_stored_with_its_event_and_handed_to_the_worker() {
    let app = App::start().await;
    let event = json!({"title": "a job", "tags": "email"});
    let published = publish_with(&app, "traceparent", TRACEPARENT, &event).await.expect(201).json();
    assert_eq!(published["traceparent"], TRACEPARENT);
    assert_eq!(app.event(published["id"].as_i64().expect("an id")).await["traceparent"], TRACEPARENT);
    assert_eq!(app.claim("email", "w:1").await.expect("an event")["traceparent"], TRACEPARENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_trace_is_ignored() {
    let app = App::start().await;
    let malformed = [
        "",
        "nonsense",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    ];
    for value in malformed {
        let event = json!({"title": "a job", "tags": "email"});
        let published = publish_with(&app, "traceparent", value, &event).await.expect(201).json();
        assert_eq!(published["traceparent"], Value::Null, "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_echoed_in_successes_and_errors() {
    let app = App::start().await;
    let good = publish_with(&app, "x-request-id", "order-7/a", &json!({"title": "a job", "tags": "email"})).await;
    assert_eq!(good.expect(201).header("x-request-id"), Some("order-7/a"));
    let bad = publish_with(&app, "x-request-id", "order-7/b", &json!({})).await;
    assert_eq!(bad.expect(400).header("x-request-id"), Some("order-7/b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_usable_id_gets_one() {
    let app = App::start().await;
    let event = json!({"title": "a job", "tags": "email"});
    let mut ids = vec![app.post("/events", &event).await.expect(201), app.get("/nowhere").await.expect(404)];
    for unusable in ["", "with space", &*"x".repeat(129)] {
        ids.push(publish_with(&app, "x-request-id", unusable, &event).await.expect(201));
    }
    let mut ids: Vec<&str> = ids.iter().map(|reply| reply.header("x-request-id").expect("an id")).collect();
    assert!(ids.iter().all(|id| !id.is_empty() && !id.contains(' ') && id.len() <= 128), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_content_type_may_have_a_charset() {
    let app = App::start().await;
    for content_type in ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"] {
        let request = app.client.post(format!("{}/events", app.base)).header("content-type", content_type);
        let request = request.body(r#"{"title":"a job","tags":"email"}"#);
        Reply::of(request.send().await.expect("a response")).await.expect(201);
    }
}
