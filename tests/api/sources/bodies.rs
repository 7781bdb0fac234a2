//! Bodies of all kinds.

use serde_json::{Value, json};

use crate::support::{App, Reply};

const LARGEST: usize = 1024 * 1024;

async fn open_source(app: &App) -> Value {
    app.source(json!({"name": "anything", "verify": {"scheme": "none"}, "tags": ["t"]})).await
}

async fn send(app: &App, source: &Value, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
    app.send_webhook(source, &[("content-type", content_type)], body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_kept_byte_for_byte() {
    let app = App::start().await;
    let source = open_source(&app).await;
    let body = "{\"b\" :1.50,\n\"a\":[\"\\u0000\", 1e2], \"a\":null}";
    send(&app, &source, "application/json", body).await.expect(202);
    let claimed = app.get("/events/subscribe?tags=t&worker_id=w:1").await.expect(200);
    assert!(claimed.text.contains(&format!("\"payload\":{body}")), "{}", claimed.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bodies_are_kept_as_strings_and_labels_say_what_they_were() {
    let app = App::start().await;
    let source = open_source(&app).await;
    let form = "application/x-www-form-urlencoded";
    send(&app, &source, form, "payload=%7B%22a%22%3A1%7D&b=2").await.expect(202);
    send(&app, &source, "text/csv; charset=utf-8", "a,\"b\"\r\nü\0").await.expect(202);
    send(&app, &source, "image/png", vec![0x89, b'P', b'N', b'G', 0xff]).await.expect(202);
    send(&app, &source, "application/json", "{\"a\":").await.expect(202);
    app.send_webhook(&source, &[], "").await.expect(202);
    let events = app.all_events().await;
    let shown: Vec<(&Value, &Value)> = events.iter().map(|event| (&event["payload"], &event["labels"])).collect();
    let expected = [
        (json!("payload=%7B%22a%22%3A1%7D&b=2"), json!({"content_type": form})),
        (json!("a,\"b\"\r\nü\0"), json!({"content_type": "text/csv; charset=utf-8"})),
        (json!("iVBOR/8="), json!({"content_type": "image/png", "payload_encoding": "base64"})),
        (json!("{\"a\":"), json!({"content_type": "application/json"})),
        (json!(null), json!({})),
    ];
    for (shown, expected) in shown.into_iter().zip(&expected) {
        assert_eq!(shown, (&expected.0, &expected.1));
    }
    assert!(events.iter().all(|event| event["event_type"] == "anything"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_may_be_as_large_as_a_payload_and_not_larger() {
    let app = App::start().await;
    let source = open_source(&app).await;
    let of_size = |size: usize| format!("[\"{}\"]", "x".repeat(size - 4));
    send(&app, &source, "application/json", of_size(LARGEST)).await.expect(202);
    send(&app, &source, "application/json", of_size(LARGEST + 1)).await.problem(413, "payload_too_large");
    // As a string, with two quotes.
    send(&app, &source, "text/csv", "x".repeat(LARGEST - 2)).await.expect(202);
    send(&app, &source, "text/csv", "x".repeat(LARGEST - 1)).await.problem(413, "payload_too_large");
    send(&app, &source, "image/png", vec![0xff; LARGEST - 1]).await.problem(413, "payload_too_large");
    assert_eq!(app.stored_events().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_cannot_become_an_event_is_refused_by_field() {
    let app = App::start().await;
    let source = app
        .source(json!({
            "verify": {"scheme": "none"}, "event_type_from": {"path": "type"}, "idempotency_key_from": {"header": "x-id"},
        }))
        .await;
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    send(&app, &source, "application/json", deep).await.names(&["body"]);
    send(&app, &source, "application/json", r#"{"type":"waybill.delivery.exhausted"}"#).await.names(&["event_type"]);
    let long = json!({"type": "x".repeat(256)}).to_string();
    send(&app, &source, "application/json", long).await.names(&["event_type"]);
    let key = "k".repeat(256);
    app.send_webhook(&source, &[("x-id", &key)], "{}").await.names(&["idempotency_key"]);
    let compressed = [("content-encoding", "gzip")];
    app.send_webhook(&source, &compressed, "{}").await.problem(415, "unsupported_content_encoding");
    assert_eq!(app.stored_events().await, 0);
}
