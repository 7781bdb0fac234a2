//! Fields of the wrong type, shape, length or range.

use serde_json::{Value, json};

use crate::support::App;

/// Returns a value of every JSON type except `null`, which means that the field is not given.
fn one_of_each_type() -> [(&'static str, Value); 6] {
    [
        ("boolean", json!(true)),
        ("integer", json!(5)),
        ("fraction", json!(1.5)),
        ("string", json!("some text")),
        ("list", json!([1])),
        ("object", json!({"a": 1})),
    ]
}

/// Sends `body` with one field set to a value of each type that it must not have.
async fn refuses_other_types(app: &App, path: &str, body: &Value, field: &str, types: &[&str]) {
    for (name, value) in one_of_each_type() {
        if !types.contains(&name) {
            let mut body = body.clone();
            body[field] = value;
            // An error inside an object is named by its path.
            let named = if (field, name) == ("labels", "object") { "labels.a" } else { field };
            app.post(path, &body).await.names(&[named]);
        }
    }
}

/// Publishes with one field set to each of `values`, and asserts that the response names `named`.
async fn refuses(app: &App, field: &str, named: &str, values: impl IntoIterator<Item = Value>) {
    for value in values {
        let mut body = json!({"title": "a job", "tags": "email"});
        body[field] = value;
        app.post("/events", &body).await.names(&[named]);
    }
}

fn long(characters: usize) -> Value {
    "ü".repeat(characters).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_an_event_of_the_wrong_type_are_refused() {
    let app = App::start().await;
    let body = json!({"title": "a job", "tags": "email"});
    for field in ["title", "description", "event_type", "ordering_key", "correlation_id", "tags"] {
        refuses_other_types(&app, "/events", &body, field, &["string"]).await;
    }
    for field in ["priority", "max_retries"] {
        refuses_other_types(&app, "/events", &body, field, &["integer"]).await;
    }
    refuses_other_types(&app, "/events", &body, "delay_seconds", &["integer", "fraction"]).await;
    for field in ["labels", "run_at", "expires_at", "backoff"] {
        refuses_other_types(&app, "/events", &body, field, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_workers_call_of_the_wrong_type_are_refused() {
    let app = App::start().await;
    let body = json!({"worker_id": "w:1"});
    for verb in ["start", "heartbeat", "complete", "fail", "release"] {
        let path = format!("/events/1/{verb}");
        refuses_other_types(&app, &path, &body, "worker_id", &[]).await;
        refuses_other_types(&app, &path, &body, "lease_id", &["integer"]).await;
    }
    let integers = [
        ("complete", "execution_time_ms"),
        ("complete", "status_code"),
        ("fail", "execution_time_ms"),
        ("fail", "status_code"),
    ];
    for (verb, field) in integers {
        refuses_other_types(&app, &format!("/events/1/{verb}"), &body, field, &["integer"]).await;
    }
    for (verb, field) in [("fail", "retry_after_seconds"), ("release", "delay_seconds"), ("heartbeat", "lease_seconds")]
    {
        refuses_other_types(&app, &format!("/events/1/{verb}"), &body, field, &["integer", "fraction"]).await;
    }
    refuses_other_types(&app, "/events/1/fail", &body, "error_message", &["string"]).await;
    refuses_other_types(&app, "/events/1/fail", &body, "retryable", &["boolean"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_claim_of_the_wrong_type_are_refused() {
    let app = App::start().await;
    let body = json!({"tags": ["email"], "worker_id": "w:1"});
    refuses_other_types(&app, "/events/claim", &body, "max", &["integer"]).await;
    for field in ["wait_seconds", "lease_seconds"] {
        refuses_other_types(&app, "/events/claim", &body, field, &["integer", "fraction"]).await;
    }
    for field in ["tags", "worker_id"] {
        refuses_other_types(&app, "/events/claim", &body, field, &[]).await;
    }
    refuses_other_types(&app, "/events/claim", &body, "idempotency_key", &["string"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_settlement_of_the_wrong_type_are_named_by_their_index() {
    let app = App::start().await;
    let fine = json!({"event_id": 1, "action": "complete"});
    let body = json!({"worker_id": "w:1", "settlements": [fine]});
    refuses_other_types(&app, "/events/settle", &body, "worker_id", &[]).await;
    refuses_other_types(&app, "/events/settle", &body, "settlements", &["list"]).await;
    let bad = [
        ("event_id", json!("1")),
        ("event_id", json!(0)),
        ("lease_id", json!(0)),
        ("action", json!(1)),
        ("action", json!("start")),
        ("execution_time_ms", json!(-1)),
    ];
    for (field, value) in bad {
        let mut result = fine.clone();
        result[field] = value;
        let body = json!({"worker_id": "w:1", "settlements": [fine, result]});
        app.post("/events/settle", &body).await.names(&[&format!("settlements[1].{field}")]);
    }
    let body = json!({"worker_id": "w:1", "settlements": [5, {}, {"event_id": 1, "action": "complete", "colour": 1}]});
    let named = ["settlements[0]", "settlements[1].action", "settlements[1].event_id", "settlements[2].colour"];
    app.post("/events/settle", &body).await.names(&named);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_one_to_a_thousand_settlements() {
    let app = App::start().await;
    for count in [0, 1_001] {
        let results = vec![json!({"event_id": 1, "action": "complete"}); count];
        app.post("/events/settle", &json!({"worker_id": "w:1", "settlements": results})).await.names(&["settlements"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_an_event_have_a_maximum_length_and_no_nul() {
    let app = App::start().await;
    for field in ["title", "event_type", "ordering_key", "correlation_id"] {
        refuses(&app, field, field, [json!(""), long(256), json!("\0"), json!("a\0b")]).await;
    }
    refuses(&app, "description", "description", [long(10_001), json!("a\0b")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_must_be_valid_unicode() {
    let app = App::start().await;
    for field in ["title", "description", "event_type", "tags", "ordering_key", "correlation_id", "labels"] {
        for lone in [r"\ud800", r"\udc00", r"\ud800\ud800", r"a\udfffb"] {
            let mut body = json!({"title": "a job", "tags": "email"});
            let (value, named) =
                if field == "labels" { (json!({"a": "HERE"}), "labels.a") } else { (json!("HERE"), field) };
            body[field] = value;
            app.post_text("/events", &body.to_string().replace("HERE", lone)).await.names(&[named]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_length_and_characters_of_tags_are_limited() {
    let app = App::start().await;
    let many: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    let bad = [
        json!("a,,b"),
        json!("a,"),
        json!(","),
        json!([""]),
        json!(["a", " "]),
        json!(["a,b"]),
        json!(["a", 1]),
        json!(["a", null]),
        json!([["a"]]),
        json!(["a\0b"]),
        json!("a\0b"),
        json!("a\u{7}b"),
        json!("a\u{85}b"),
        json!("a\nb"),
        json!([long(101)]),
        long(101),
        json!(many),
        json!(many.join(",")),
    ];
    refuses(&app, "tags", "tags", bad).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_and_length_of_labels_are_limited() {
    let app = App::start().await;
    let many: serde_json::Map<String, Value> = (0..33).map(|n| (n.to_string(), json!("x"))).collect();
    refuses(&app, "labels", "labels", [json!([]), json!(many), json!({"": "x"})]).await;
    let bad = [json!(1), json!(null), json!({"b": "c"}), long(256), json!("x\0")];
    refuses(&app, "labels", "labels.a", bad.map(|value| json!({"a": value}))).await;
    refuses(&app, "labels", "labels.a\0", [json!({"a\0": "x"})]).await;
    let cut_short = format!("labels.{}", "ü".repeat(100));
    refuses(&app, "labels", &cut_short, [json!({"ü".repeat(256): "x"})]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_an_event_out_of_range_are_refused() {
    let app = App::start().await;
    let bad = [
        ("priority", ["101", "-101", "40000", "1e2", "-0.0", "\"1\""]),
        ("max_retries", ["0", "-1", "1001", "3.0", "99999999999999999999999", "\"3\""]),
        ("delay_seconds", ["-1", "2592001", "-0.5", "1e9", "18446744073709551616", "\"5\""]),
    ];
    for (field, values) in bad {
        for value in values {
            let body = format!(r#"{{"title":"a job","tags":"email","{field}":{value}}}"#);
            app.post_text("/events", &body).await.names(&[field]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn times_of_an_event_must_be_rfc_3339() {
    let app = App::start().await;
    let bad = [
        "",
        "now",
        "infinity",
        "1767225600",
        "2026-01-31",
        "2026-01-31T09:30:00",
        "2026-01-31T09:30Z",
        "2026-02-30T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T09:30:00+25:00",
        " 2026-01-31T09:30:00Z",
        "2026-01-31T09:30:00Z\0",
        "10000-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "0000-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ];
    for field in ["run_at", "expires_at"] {
        refuses(&app, field, field, bad.map(Value::from)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_cannot_have_both_a_time_and_a_delay() {
    let app = App::start().await;
    let body = json!({"title": "a job", "tags": "email", "run_at": "2099-01-01T00:00:00Z", "delay_seconds": 5});
    app.post("/events", &body).await.names(&["delay_seconds"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_cannot_expire_before_it_may_run() {
    let app = App::start().await;
    let body = |expires_at: &str| json!({"title": "a job", "tags": "email", "run_at": "2099-01-01T00:00:00Z", "expires_at": expires_at});
    app.post("/events", &body("2099-01-01T00:00:00Z")).await.names(&["expires_at"]);
    app.post("/events", &body("2099-01-01T00:30:00+01:00")).await.names(&["expires_at"]);
    app.post("/events", &body("2099-01-01T00:00:01Z")).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backoff_has_one_of_three_shapes() {
    let app = App::start().await;
    let bad = [
        json!({}),
        json!({"seconds": 5}),
        json!({"strategy": "never"}),
        json!({"strategy": "Fixed", "seconds": 5}),
        json!({"strategy": "fixed"}),
        json!({"strategy": "fixed", "seconds": "5"}),
        json!({"strategy": "fixed", "seconds": [5]}),
        json!({"strategy": "fixed", "seconds": null}),
        json!({"strategy": "fixed", "seconds": 5, "jitter": "full"}),
        json!({"strategy": "exponential", "base_seconds": 5}),
        json!({"strategy": "exponential", "max_seconds": 5}),
        json!({"strategy": "exponential", "base_seconds": 5, "max_seconds": 9, "jitter": "some"}),
        json!({"strategy": "exponential", "base_seconds": 5, "max_seconds": 9, "seconds": 5}),
        json!({"strategy": "schedule"}),
        json!({"strategy": "schedule", "seconds": 5}),
        json!({"strategy": "schedule", "seconds": ["5"]}),
    ];
    refuses(&app, "backoff", "backoff", bad).await;
    let body = r#"{"title":"a job","tags":"email","backoff":{"strategy":"fixed","seconds":1,"seconds":2}}"#;
    app.post_text("/events", body).await.names(&["backoff"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backoff_waits_between_zero_seconds_and_thirty_days() {
    let app = App::start().await;
    let fixed = |seconds: i64| json!({"strategy": "fixed", "seconds": seconds});
    refuses(&app, "backoff", "backoff.seconds", [fixed(-1), fixed(2_592_001), fixed(i64::MAX)]).await;
    let schedule = |seconds: Vec<i64>| json!({"strategy": "schedule", "seconds": seconds});
    refuses(&app, "backoff", "backoff.seconds", [schedule(vec![]), schedule(vec![1; 101])]).await;
    refuses(&app, "backoff", "backoff.seconds[1]", [schedule(vec![5, -1]), schedule(vec![5, 2_592_001, 5])]).await;
    let exponential =
        |base: i64, max: i64| json!({"strategy": "exponential", "base_seconds": base, "max_seconds": max});
    refuses(&app, "backoff", "backoff.base_seconds", [exponential(-1, 5), exponential(2_592_001, 2_592_001)]).await;
    refuses(&app, "backoff", "backoff.max_seconds", [exponential(5, 4), exponential(5, 2_592_001)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_needs_a_title_or_a_type_and_tags_or_a_type() {
    let app = App::start().await;
    app.post("/events", &json!({})).await.names(&["tags", "title"]);
    app.post("/events", &json!({"tags": "email"})).await.names(&["title"]);
    for tags in [json!(null), json!(""), json!(" "), json!([])] {
        app.post("/events", &json!({"title": "a job", "tags": tags})).await.names(&["tags"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_invalid_fields_of_an_event_are_named_at_once() {
    let app = App::start().await;
    let body = json!({
        "title": "", "tags": "a,,b", "priority": 1000, "max_retries": "3", "run_at": "now", "labels": {"a": ""},
        "backoff": {"strategy": "fixed", "seconds": -1}, "colour": "red", "payload": {"fine": true},
    });
    let named = ["title", "tags", "priority", "max_retries", "run_at", "backoff.seconds", "colour"];
    app.post("/events", &body).await.names(&named);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_claim_out_of_range_are_refused() {
    let app = App::start().await;
    let many: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    let bad = [
        ("tags", json!("email")),
        ("tags", json!([])),
        ("tags", json!(["a", ""])),
        ("tags", json!(many)),
        ("worker_id", json!("")),
        ("worker_id", json!("nobody")),
        ("worker_id", json!("host:")),
        ("worker_id", json!(":1")),
        ("worker_id", json!("host:1x")),
        ("worker_id", json!("ho st:1")),
        ("worker_id", json!("host\0:1")),
        ("worker_id", json!(format!("{}:1", "h".repeat(254)))),
        ("max", json!(0)),
        ("max", json!(-1)),
        ("max", json!(1_001)),
        ("wait_seconds", json!(-1)),
        ("wait_seconds", json!(61)),
        ("lease_seconds", json!(0)),
        ("lease_seconds", json!(43_201)),
        ("lease_seconds", json!(i64::MAX)),
        ("idempotency_key", json!("")),
        ("idempotency_key", json!("a\0b")),
        ("idempotency_key", long(256)),
    ];
    for (field, value) in bad {
        let mut body = json!({"tags": ["email"], "worker_id": "w:1"});
        body[field] = value;
        app.post("/events/claim", &body).await.names(&[field]);
    }
    app.post("/events/claim", &json!({})).await.names(&["tags", "worker_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_workers_call_out_of_range_are_refused() {
    let app = App::start().await;
    let bad = [
        ("start", "worker_id", json!("nobody")),
        ("start", "lease_id", json!(0)),
        ("start", "lease_id", json!(-1)),
        ("start", "lease_id", json!(i64::MAX)),
        ("heartbeat", "lease_seconds", json!(0)),
        ("heartbeat", "lease_seconds", json!(43_201)),
        ("complete", "execution_time_ms", json!(-1)),
        ("complete", "execution_time_ms", json!(u64::MAX)),
        ("complete", "status_code", json!(3_000_000_000_i64)),
        ("fail", "error_message", long(10_001)),
        ("fail", "error_message", json!("a\0b")),
        ("fail", "retry_after_seconds", json!(-1)),
        ("fail", "retry_after_seconds", json!(2_592_001)),
        ("release", "delay_seconds", json!(-1)),
        ("release", "delay_seconds", json!(2_592_001)),
    ];
    for (verb, field, value) in bad {
        let mut body = json!({"worker_id": "w:1"});
        body[field] = value;
        app.post(&format!("/events/1/{verb}"), &body).await.names(&[field]);
    }
    for verb in ["start", "heartbeat", "complete", "fail", "release"] {
        app.post(&format!("/events/1/{verb}"), &json!({})).await.names(&["worker_id"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_and_progress_reports_have_a_maximum_size_and_depth() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    app.claim("email", "w:1").await.expect("an event");
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    for (verb, field, bytes) in [("heartbeat", "progress", 16 * 1024), ("complete", "result", 64 * 1024)] {
        let path = format!("/events/{id}/{verb}");
        let body = |value: &str| format!(r#"{{"worker_id":"w:1","{field}":{value}}}"#);
        app.post_text(&path, &body(&deep)).await.names(&[field]);
        let reply = app.post_text(&path, &body(&format!("\"{}\"", "x".repeat(bytes - 1)))).await;
        assert_eq!(reply.problem(413, "payload_too_large")["errors"][0]["field"], field);
        app.post_text(&path, &body(&format!("\"{}\"", "x".repeat(bytes - 2)))).await.expect(200);
    }
}
