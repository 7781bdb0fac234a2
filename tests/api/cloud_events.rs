//! CloudEvents at `POST /events`.

use serde_json::{Value, json};

use crate::support::{App, Reply};

async fn send(app: &App, content_type: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Reply {
    let mut request = app.client.post(format!("{}/events", app.base)).body(body);
    if !content_type.is_empty() {
        request = request.header("content-type", content_type);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Reply::of(request.send().await.expect("a response")).await
}

const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";
const BATCHED: &str = "application/cloudevents-batch+json";

fn cloud_event() -> Value {
    json!({
        "specversion": "1.0", "id": "A-1", "source": "/orders", "type": "order.made", "subject": "order/7",
        "time": "2026-11-17T10:00:00Z", "partitionkey": "customer-3", "tags": "orders", "region": "eu", "attempt": 2,
        "datacontenttype": "application/json", "data": {"total": 12.50}
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_structured_cloud_event_becomes_an_event() {
    let app = App::start().await;
    let text = cloud_event().to_string().replace("12.5", "12.50");
    let event = send(&app, STRUCTURED, &[], text.clone()).await.expect(201).json();
    assert_eq!((&event["title"], &event["event_type"]), (&json!("order.made"), &json!("order.made")));
    assert_eq!((&event["ordering_key"], &event["tags"]), (&json!("customer-3"), &json!("orders")));
    let labels = json!({"source": "/orders", "subject": "order/7", "time": "2026-11-17T10:00:00Z", "region": "eu",
        "attempt": "2", "datacontenttype": "application/json"});
    assert_eq!(event["labels"], labels);
    let reply = app.get(&format!("/events/{}", event["id"])).await.expect(200);
    assert!(reply.text.contains(r#"{"total":12.50}"#), "{}", reply.text);
    let again = send(&app, STRUCTURED, &[], text).await.expect(200);
    assert_eq!((again.header("idempotent-replayed"), &again.json()["id"]), (Some("true"), &event["id"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_the_source_with_the_id() {
    let app = App::start().await;
    let of = |source: &str, id: &str| {
        let mut event = cloud_event();
        (event["source"], event["id"]) = (json!(source), json!(id));
        event.to_string()
    };
    for (source, id) in [("/a", "b1"), ("/a", "1"), ("/ab", "1"), ("/b", "1")] {
        send(&app, STRUCTURED, &[], of(source, id)).await.expect(201);
        send(&app, STRUCTURED, &[], of(source, id)).await.expect(200);
    }
    let changed = of("/a", "1").replace("12.5", "13");
    send(&app, STRUCTURED, &[], changed).await.problem(422, "idempotency_key_reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_cloud_event_has_its_attributes_in_headers() {
    let app = App::start().await;
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/orders"),
        ("ce-type", "order.made"),
        ("ce-subject", "K%C3%B6ln"),
        ("ce-partitionkey", "p"),
        ("ce-traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    let event = send(&app, "application/json", &headers, "{\"n\": 1.0}").await.expect(201);
    assert!(event.text.contains("{\"n\": 1.0}"), "{}", event.text);
    let event = event.json();
    assert_eq!((&event["labels"]["subject"], &event["ordering_key"]), (&json!("Köln"), &json!("p")));
    assert_eq!(event["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    send(&app, "application/json", &headers, "{\"n\": 1.0}").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_other_types_is_kept_as_a_string() {
    let app = App::start().await;
    let headers = |id: &'static str| [("ce-specversion", "1.0"), ("ce-id", id), ("ce-source", "/s"), ("ce-type", "t")];
    let text = send(&app, "text/plain", &headers("1"), "plain \"text\"").await.expect(201).json();
    assert_eq!(
        (&text["payload"], &text["labels"]["datacontenttype"]),
        (&json!("plain \"text\""), &json!("text/plain"))
    );
    let bytes = send(&app, "application/octet-stream", &headers("2"), vec![0xff, 0x00, 0x10]).await.expect(201).json();
    assert_eq!((&bytes["payload"], &bytes["labels"]["dataencoding"]), (&json!("/wAQ"), &json!("base64")));
    let none = send(&app, "", &headers("3"), "").await.expect(201).json();
    assert_eq!(none["payload"], json!(null));
    let encoded = json!({"specversion": "1.0", "id": "4", "source": "/s", "type": "t", "data_base64": "/wAQ"});
    let event = send(&app, STRUCTURED, &[], encoded.to_string()).await.expect(201).json();
    assert_eq!((&event["payload"], &event["labels"]["dataencoding"]), (&json!("/wAQ"), &json!("base64")));
    send(&app, "application/json", &headers("5"), "{\"n\":").await.problem(400, "malformed_json");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_cloud_events_is_stored_item_by_item() {
    let app = App::start().await;
    let mut second = cloud_event();
    second["id"] = json!("A-2");
    send(&app, STRUCTURED, &[], cloud_event().to_string()).await.expect(201);
    let reply = send(&app, BATCHED, &[], json!([cloud_event(), second]).to_string()).await.expect(201).json();
    let repeated: Vec<&Value> = reply["events"].as_array().expect("events").iter().map(|e| &e["repeated"]).collect();
    assert_eq!(repeated, [true, false]);
    let wrong = json!([cloud_event(), {"specversion": "0.3", "id": "x", "source": "/s"}]);
    send(&app, BATCHED, &[], wrong.to_string()).await.names(&["events[1].specversion", "events[1].type"]);
    send(&app, BATCHED, &[], "[]").await.names(&["body"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_cloud_event_is_refused_and_all_its_mistakes_are_named() {
    let app = App::start().await;
    let refused = async |change: Value, fields: &[&str]| {
        let mut event = cloud_event();
        for (name, value) in change.as_object().expect("an object") {
            event[name] = value.clone();
        }
        send(&app, STRUCTURED, &[], event.to_string()).await.names(fields);
    };
    refused(json!({"id": "", "source": null}), &["id", "source"]).await;
    refused(json!({"time": "yesterday", "tags": "a,,b"}), &["time", "tags"]).await;
    refused(json!({"region": {"a": 1}}), &["region"]).await;
    refused(json!({"type": "waybill.own"}), &["event_type"]).await;
    refused(json!({"data_base64": "AAAA"}), &["data_base64"]).await;
    refused(json!({"subject": "x".repeat(256)}), &["subject"]).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
}

/// Pushes send the trace as a header, and PostgreSQL stores no U+0000.
#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_cloud_event_is_taken_if_it_is_one_and_otherwise_ignored() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let app = App::start().await;
    let malformed =
        ["\u{0}".to_owned(), "x".repeat(100_000), TRACE.to_uppercase(), format!("{TRACE}-1"), String::new()];
    for (number, trace) in malformed.into_iter().enumerate() {
        let mut event = cloud_event();
        (event["id"], event["traceparent"]) = (json!(number.to_string()), json!(trace));
        event["tracestate"] = json!("vendor=1");
        let stored = send(&app, STRUCTURED, &[], event.to_string()).await.expect(201).json();
        assert_eq!((&stored["traceparent"], &stored["labels"]["tracestate"]), (&json!(null), &json!(null)), "{number}");
    }
    let headers = |trace| {
        let attributes = [("ce-specversion", "1.0"), ("ce-id", trace), ("ce-source", "/s"), ("ce-type", "t")];
        [&attributes[..], &[("ce-traceparent", trace), ("ce-tracestate", "vendor=1")]].concat()
    };
    for (trace, expected) in [("%00", json!(null)), (TRACE, json!(TRACE))] {
        let stored = send(&app, "application/json", &headers(trace), "1").await.expect(201).json();
        assert_eq!((&stored["traceparent"], &stored["labels"]["tracestate"]), (&expected, &json!(null)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_a_payload_is_that_of_the_json_that_is_stored() {
    const LIMIT: usize = 1024 * 1024;
    let app = App::start().await;
    let headers = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")];
    let too_large = [
        ("text/plain", "\"".repeat(LIMIT / 2)),
        ("text/plain", "\u{1}".repeat(LIMIT / 4)),
        ("text/plain", "a".repeat(LIMIT - 1)),
    ];
    for (content_type, text) in too_large {
        send(&app, content_type, &headers, text).await.problem(413, "payload_too_large");
    }
    let bytes = vec![0xff; LIMIT / 4 * 3];
    send(&app, "application/octet-stream", &headers, bytes).await.problem(413, "payload_too_large");
    let encoded = |length: usize| {
        json!({"specversion": "1.0", "id": "2", "source": "/s", "type": "t",
        "data_base64": "A".repeat(length)})
    };
    let refused = send(&app, STRUCTURED, &[], encoded(LIMIT).to_string()).await.problem(413, "payload_too_large");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("data_base64")), "{refused}");
    let batch = json!([cloud_event(), encoded(LIMIT)]).to_string();
    let refused = send(&app, BATCHED, &[], batch).await.problem(413, "payload_too_large");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("events[1].data_base64")), "{refused}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    send(&app, "text/plain", &headers, "a".repeat(LIMIT - 2)).await.expect(201);
    send(&app, STRUCTURED, &[], encoded(LIMIT - 4).to_string()).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_not_percent_encoded_is_taken_as_it_is() {
    let app = App::start().await;
    for (number, value, expected) in [
        ("1", "100% wool", "100% wool"),
        ("2", "100%", "100%"),
        ("3", "%ff", "%ff"),
        ("4", "50%25", "50%"),
        ("5", "%+1", "%+1"),
    ] {
        let headers = [("ce-specversion", "1.0"), ("ce-id", number), ("ce-source", "/s"), ("ce-type", "t")];
        let headers = [&headers[..], &[("ce-subject", value)]].concat();
        let event = send(&app, "application/json", &headers, "1").await.expect(201).json();
        assert_eq!(event["labels"]["subject"], expected);
    }
}

/// Returns the requests that the published library makes of one event: structured, binary and batched.
fn requests_of_the_library() -> Vec<Value> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
    let mut python = std::process::Command::new(folder.join(".venv/bin/python"));
    let made =
        python.arg("cloud_events.py").current_dir(&folder).output().expect("scripts/prepare --tests installs it");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    serde_json::from_slice(&made.stdout).expect("JSON")
}

/// All of them are the same event, so the second and the third are repeats.
#[tokio::test(flavor = "multi_thread")]
async fn the_cloud_events_of_the_published_library_are_taken_in_all_modes() {
    let app = App::start().await;
    let mut replies = Vec::new();
    for request in requests_of_the_library() {
        let headers = request["headers"].as_object().expect("headers").iter();
        let headers: Vec<(&str, &str)> =
            headers.map(|(name, value)| (name.as_str(), value.as_str().expect("a text"))).collect();
        replies.push(send(&app, "", &headers, request["body"].as_str().expect("a body").to_owned()).await);
    }
    let [structured, binary, batched] = replies.try_into().expect("three");
    let event = structured.expect(201).json();
    assert_eq!((&event["event_type"], &event["tags"]), (&json!("order.made"), &json!("orders")));
    assert_eq!(
        (&event["payload"], &event["ordering_key"]),
        (&json!({"total": 12, "name": "Zoë"}), &json!("customer-3"))
    );
    assert_eq!(event["labels"]["source"], "https://shop.example/orders");
    assert_eq!(event["labels"]["time"], "2026-11-17T10:00:00Z");
    assert_eq!(binary.expect(200).json()["id"], event["id"]);
    let receipts = batched.expect(201).json();
    assert_eq!((&receipts["events"][0]["id"], &receipts["events"][0]["repeated"]), (&event["id"], &json!(true)));
}
