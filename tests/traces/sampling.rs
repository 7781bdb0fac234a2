//! Which traces are recorded.

use serde_json::json;

use super::{Collector, PUBLISHER, TRACE, TRACEPARENT, UNSAMPLED, only, post_traced};

/// Another sampled trace: its spans show that those before it have arrived.
const MARKER: &str = "00-0000000000000000000000000000000a-000000000000000b-01";

#[tokio::test(flavor = "multi_thread")]
async fn an_unsampled_trace_is_not_recorded_whatever_the_ratio() {
    let collector = Collector::start().await;
    let app = collector.app(&["--trace-ratio=1"]).await;
    let event = json!({"title": "a job", "tags": "a"});
    let published = post_traced(&app, "/events", UNSAMPLED, &event).await.expect(201).json();
    assert_eq!(published["traceparent"], UNSAMPLED);
    app.claim("a", "w:1").await.expect("an event");
    app.complete(published["id"].as_i64().expect("an id"), "w:1").await.expect(200);
    post_traced(&app, "/events", MARKER, &event).await.expect(201);
    let spans = collector.until_named("POST /events").await;
    assert!(spans.iter().all(|span| span.trace != TRACE), "{spans:#?}");
    // The worker's own requests are traces of their own, but say nothing about the event.
    assert!(!spans.iter().any(|span| span.name == "claim" || span.name == "complete"), "{spans:#?}");
    only(&spans, "POST /events/{id}/complete");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_ratio_of_0_only_traces_of_callers_are_recorded() {
    let collector = Collector::start().await;
    let app = collector.app(&["--trace-ratio=0"]).await;
    let event = json!({"title": "a job", "tags": "a"});
    let published = app.post("/events", &event).await.expect(201).json();
    assert!(published["traceparent"].is_null(), "a trace that is not recorded is nobody's: {published}");
    app.claim("a", "w:1").await.expect("an event");
    app.complete(published["id"].as_i64().expect("an id"), "w:1").await.expect(200);
    post_traced(&app, "/events", TRACEPARENT, &event).await.expect(201);
    let spans = collector.until_named("POST /events").await;
    let names: Vec<(&str, &str)> = spans.iter().map(|span| (span.name.as_str(), span.trace.as_str())).collect();
    assert_eq!(names, [("POST /events", TRACE), ("publish", TRACE)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_traceparent_begins_a_new_trace() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    let malformed = format!("00-{TRACE}-{PUBLISHER}-1");
    let published =
        post_traced(&app, "/events", &malformed, &json!({"title": "a job", "tags": "a"})).await.expect(201).json();
    let spans = collector.until_named("POST /events").await;
    let request = only(&spans, "POST /events");
    assert!(request.trace != TRACE && request.parent.is_empty(), "{request:?}");
    assert_eq!(published["traceparent"], only(&spans, "publish").traceparent());
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_begin_no_traces() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    for path in ["/health", "/ready", "/metrics"] {
        app.get(path).await.expect(200);
    }
    app.get("/tags").await.expect(200);
    let spans = collector.until_named("GET /tags").await;
    assert_eq!(spans.len(), 1, "{spans:#?}");
}
