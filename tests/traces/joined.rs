//! Spans join the trace of the publisher.

use serde_json::{Value, json};

use super::{Collector, PUBLISHER, TRACE, TRACEPARENT, only, post_traced, send};
use crate::support::App;

const SERVER: i32 = 2;
const PRODUCER: i32 = 4;
const CONSUMER: i32 = 5;

/// Publishes an event with the tag `a` in the trace of the publisher. Returns its id.
async fn publish(app: &App) -> i64 {
    let event = json!({"title": "a job", "tags": "a"});
    id_of(&post_traced(app, "/events", TRACEPARENT, &event).await.expect(201).json())
}

fn id_of(event: &Value) -> i64 {
    event["id"].as_i64().expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_a_claim_and_a_completion_are_spans_of_the_publishers_trace() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    let id = publish(&app).await;
    let claimed = app.claim("a", "w:1").await.expect("an event");
    assert_eq!(claimed["traceparent"], TRACEPARENT, "as published");
    app.complete(id, "w:1").await.expect(200);
    let spans = collector.until_named("POST /events/{id}/complete").await;

    let request = only(&spans, "POST /events");
    assert_eq!((request.trace.as_str(), request.parent.as_str(), request.kind), (TRACE, PUBLISHER, SERVER));
    let expected = [
        ("http.request.method", "POST"),
        ("http.route", "/events"),
        ("url.path", "/events"),
        ("http.response.status_code", "201"),
    ];
    for (name, value) in expected {
        assert_eq!(request.attribute(name), value);
    }
    let publish = only(&spans, "publish");
    assert_eq!((&publish.trace, &publish.parent, publish.kind), (&request.trace, &request.id, PRODUCER));
    assert_eq!(publish.attribute("messaging.message.id"), id.to_string());

    // The worker named no trace: its requests are traces of their own, to which the spans about the event are linked.
    for (name, of) in [("claim", "GET /events/subscribe"), ("complete", "POST /events/{id}/complete")] {
        let (span, request) = (only(&spans, name), only(&spans, of));
        assert_eq!((span.trace.as_str(), span.parent.as_str(), span.kind), (TRACE, PUBLISHER, CONSUMER));
        assert_eq!(span.attribute("messaging.message.id"), id.to_string());
        assert_eq!(span.links, [request.link()]);
        assert!(request.trace != TRACE && request.parent.is_empty());
    }
    assert_eq!(only(&spans, "claim").attribute("waybill.attempt"), "1");
    assert_eq!(only(&spans, "complete").attribute("waybill.outcome"), "COMPLETED");
    assert!(spans.iter().all(|span| span.nanoseconds.0 <= span.nanoseconds.1 && !span.has_failed), "{spans:#?}");
    let resource = &request.resource;
    assert_eq!(
        (resource["service.name"].as_str(), &*resource["service.version"]),
        ("waybill", env!("CARGO_PKG_VERSION"))
    );
    assert!(resource["service.instance.id"].ends_with(&format!(":{}", std::process::id())), "{resource:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settlement_of_a_worker_that_continues_the_trace_stands_below_its_request() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    let id = publish(&app).await;
    app.claim("a", "w:1").await.expect("an event");
    let worker = format!("00-{TRACE}-1111111111111111-01");
    let failing = json!({"worker_id": "w:1", "error_message": "no"});
    post_traced(&app, &format!("/events/{id}/fail"), &worker, &failing).await.expect(200);
    let spans = collector.until_named("POST /events/{id}/fail").await;
    let (request, fail) = (only(&spans, "POST /events/{id}/fail"), only(&spans, "fail"));
    assert_eq!((request.trace.as_str(), request.parent.as_str()), (TRACE, "1111111111111111"));
    assert_eq!((&fail.trace, &fail.parent, fail.links.len()), (&request.trace, &request.id, 0));
    assert_eq!((fail.attribute("waybill.outcome"), fail.attribute("waybill.failures")), ("PENDING", "1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_settlement_is_a_span_that_failed() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    let id = publish(&app).await;
    app.claim("a", "w:1").await.expect("an event");
    app.complete(id, "w:2").await.expect(409);
    let spans = collector.until_named("POST /events/{id}/complete").await;
    let complete = only(&spans, "complete");
    assert!(complete.has_failed && complete.attributes.contains_key("error.type"), "{complete:?}");
    let request = only(&spans, "POST /events/{id}/complete");
    assert_eq!((request.attribute("http.response.status_code"), request.has_failed), ("409", false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_several_events_is_linked_to_their_traces() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    let traces = [1, 2].map(|number| (format!("{number:032x}"), format!("{number:016x}")));
    for (trace, span) in &traces {
        let event = json!({"title": "a job", "tags": "a"});
        post_traced(&app, "/events", &format!("00-{trace}-{span}-01"), &event).await.expect(201);
    }
    let claiming = json!({"tags": ["a"], "worker_id": "w:1", "max": 10});
    let claimed = app.post("/events/claim", &claiming).await.expect(200).json();
    let settled = claimed["events"].as_array().expect("events").iter();
    let settlements: Vec<Value> = settled.map(|event| json!({"event_id": event["id"], "action": "complete"})).collect();
    app.post("/events/settle", &json!({"worker_id": "w:1", "settlements": settlements})).await.expect(200);
    let spans = collector.until_named("POST /events/settle").await;
    let (request, claim) = (only(&spans, "POST /events/claim"), only(&spans, "claim"));
    assert_eq!((&claim.trace, &claim.parent), (&request.trace, &request.id));
    let mut links = claim.links.clone();
    links.sort();
    assert_eq!(links, traces);
    assert_eq!(claim.attribute("messaging.batch.message_count"), "2");
    let completions = spans.iter().filter(|span| span.name == "complete");
    let mut completed: Vec<(String, String)> =
        completions.map(|span| (span.trace.clone(), span.parent.clone())).collect();
    completed.sort();
    assert_eq!(completed, traces, "each settlement is in the trace of its event");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_trace_gets_that_of_its_publish() {
    let collector = Collector::start().await;
    let app = collector.app(&[]).await;
    let event = json!({"title": "a job", "tags": "a", "idempotency_key": "k"});
    let published = app.post("/events", &event).await.expect(201).json();
    let repeated = app.post("/events", &event).await.expect(200).json();
    assert_eq!((&repeated["id"], &repeated["traceparent"]), (&published["id"], &published["traceparent"]));
    let claimed = app.claim("a", "w:1").await.expect("an event");
    let spans = collector.until_named("GET /events/subscribe").await;
    let mut publishes = spans.iter().filter(|span| span.name == "publish");
    let (first, second) = (publishes.next().expect("a span"), publishes.next().expect("a span"));
    assert_eq!(published["traceparent"], first.traceparent());
    assert_eq!(claimed["traceparent"], first.traceparent());
    let counts = [first, second].map(|span| span.attribute("waybill.repeated_count"));
    assert_eq!(counts, ["0", "1"]);
    let claim = only(&spans, "claim");
    assert_eq!((&claim.trace, &claim.parent), (&first.trace, &first.id));
    let claiming = only(&spans, "GET /events/subscribe").nanoseconds;
    assert!(claim.nanoseconds.0 >= first.nanoseconds.0.min(claiming.0), "not before the event existed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_cloud_event_is_the_one_that_it_names() {
    let collector = Collector::start().await;
    let app = collector.app(&["--trace-ratio=0"]).await;
    let event = json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "traceparent": TRACEPARENT});
    let publishing = app.client.post(format!("{}/events", app.base));
    let publishing = publishing.header("content-type", "application/cloudevents+json").body(event.to_string());
    send(publishing).await.expect(201);
    let spans = collector.until_named("publish").await;
    let publish = only(&spans, "publish");
    assert_eq!((publish.trace.as_str(), publish.parent.as_str(), spans.len()), (TRACE, PUBLISHER, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_and_a_key_are_no_obstacle() {
    let collector = Collector::start().await;
    let app = collector.app(&["--trace-ratio=0"]).await.with_admin_key().await;
    let team = app.team("reports").await;
    let id = publish(&team).await;
    team.claim("a", "w:1").await.expect("an event");
    team.complete(id, "w:1").await.expect(200);
    let spans = collector.until_named("complete").await;
    for name in ["publish", "claim", "complete"] {
        let span = only(&spans, name);
        assert_eq!(span.trace, TRACE);
        assert_ne!(span.attribute("waybill.namespace_id"), "1");
    }
}
