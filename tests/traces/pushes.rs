//! Pushes are spans, and their receivers hear of them.

use serde_json::json;

use super::{Collector, PUBLISHER, TRACE, TRACEPARENT, UNSAMPLED, only, post_traced};
use crate::push::{at_once, publish_id};
use crate::support::receiver::{Receiver, Reply};

const CLIENT: i32 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_is_a_span_of_the_events_trace_and_the_receiver_gets_its_context() {
    let (collector, receiver) = (Collector::start().await, Receiver::start().await);
    let app = collector.app(&[]).await;
    app.subscribe(&receiver.url("/hook"), json!({"backoff": at_once()})).await;
    receiver.next(Reply::status(500));
    let published = post_traced(&app, "/events", TRACEPARENT, &json!({"event_type": "t"})).await.expect(201).json();
    let requests = receiver.received(2).await;
    let spans = collector.until_count("push", 2).await;
    let pushes: Vec<_> = spans.iter().filter(|span| span.name == "push").collect();
    assert_eq!(pushes.len(), 2);
    for (number, (push, request)) in pushes.iter().zip(&requests).enumerate() {
        assert_eq!((push.trace.as_str(), push.parent.as_str(), push.kind), (TRACE, PUBLISHER, CLIENT));
        assert_eq!(request.header("traceparent"), Some(push.traceparent().as_str()));
        assert_eq!(push.attribute("waybill.attempt"), (number + 1).to_string());
        assert_eq!(push.attribute("messaging.message.id"), published["id"].to_string());
        assert_eq!(push.attribute("server.port"), receiver.address().port().to_string());
    }
    let outcomes = pushes.iter().map(|push| (push.attribute("http.response.status_code"), push.has_failed));
    assert_eq!(outcomes.collect::<Vec<_>>(), [("500", true), ("200", false)]);
    assert_eq!(app.event(published["id"].as_i64().expect("an id")).await["traceparent"], TRACEPARENT, "as published");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_up_is_a_span_that_failed() {
    let (collector, receiver) = (Collector::start().await, Receiver::start().await);
    let app = collector.app(&[]).await;
    app.subscribe(&receiver.url("/hook"), json!({"backoff": at_once()})).await;
    receiver.next(Reply::close());
    publish_id(&app, "t").await;
    let spans = collector.until_count("push", 2).await;
    let failed: Vec<_> = spans.iter().filter(|span| span.name == "push" && span.has_failed).collect();
    assert_eq!(failed.len(), 1, "{spans:#?}");
    assert!(!failed[0].attribute("error.type").is_empty());
    let publish = only(&spans, "publish");
    assert_eq!((&failed[0].trace, &failed[0].parent), (&publish.trace, &publish.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_an_unsampled_trace_is_pushed_with_the_trace_as_published() {
    let (collector, receiver) = (Collector::start().await, Receiver::start().await);
    let app = collector.app(&[]).await;
    app.subscribe(&receiver.url("/hook"), json!({"max_concurrency": 1})).await;
    post_traced(&app, "/events", UNSAMPLED, &json!({"event_type": "t"})).await.expect(201);
    assert_eq!(receiver.received(1).await[0].header("traceparent"), Some(UNSAMPLED));
    // Its spans would arrive before those of a later push.
    publish_id(&app, "t").await;
    let spans = collector.until_named("push").await;
    assert!(spans.iter().all(|span| span.trace != TRACE), "{spans:#?}");
}
