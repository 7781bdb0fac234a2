//! What a program finds in its environment.

use serde_json::{Value, json};

use super::{Working, publish, until_status};
use crate::support::App;

/// Prints all variables of an event as JSON.
const PRINT: &str = r#"printf '{"type": "%s", "labels": %s, "priority": %s, "correlation": "%s", "trace": "%s",
    "created": "%s", "tags": "%s", "max": %s, "lease_id": %s}' \
    "$WAYBILL_EVENT_TYPE" "$WAYBILL_LABELS" "$WAYBILL_PRIORITY" "$WAYBILL_CORRELATION_ID" "$WAYBILL_TRACEPARENT" \
    "$WAYBILL_CREATED_AT" "$WAYBILL_TAGS" "$WAYBILL_MAX_RETRIES" "$WAYBILL_LEASE_ID""#;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_finds_the_fields_of_its_event_in_its_environment() {
    let app = App::start().await;
    let working = Working::start(&app.base, &[], PRINT);
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let event = json!({"title": "t", "tags": ["a", "b"], "event_type": "photo.uploaded", "labels": {"team": "core"},
        "priority": -7, "correlation_id": "import-77", "max_retries": 5});
    let request = app.client.post(format!("{}/events", app.base)).header("traceparent", traceparent);
    let published = request.header("content-type", "application/json").body(event.to_string());
    let text = published.send().await.expect("a response").text().await.expect("text");
    let id = serde_json::from_str::<Value>(&text).expect("JSON")["id"].as_i64().unwrap_or_else(|| panic!("{text}"));
    until_status(&app, id, "COMPLETED").await;
    let event = app.event(id).await;
    let result = &event["result"];
    assert_eq!(
        (&result["type"], &result["labels"], &result["priority"], &result["correlation"], &result["tags"]),
        (&json!("photo.uploaded"), &json!({"team": "core"}), &json!(-7), &json!("import-77"), &json!("a,b"))
    );
    assert_eq!((&result["created"], &result["max"]), (&event["created_at"], &json!(5)));
    assert_eq!(result["trace"], event["traceparent"]);
    let trace = result["trace"].as_str().expect("a trace");
    assert!(trace.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{trace}");
    assert!(result["lease_id"].as_i64().is_some_and(|lease| lease > 0), "{result}");
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_the_key_of_its_worker_only_on_request() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["work"]})).await;
    let script = r#"printf '"%s"' "${WAYBILL_KEY-none}""#;
    for (flags, expected) in [(&[][..], "none"), (&["--pass-key"], key.key.as_str())] {
        let working = Working::with_key(&app.base, Some(&key.key), flags, script);
        let id = publish(&app, json!(1)).await;
        until_status(&app, id, "COMPLETED").await;
        assert_eq!(app.event(id).await["result"], expected, "{flags:?}");
        working.stop().await;
    }
}
