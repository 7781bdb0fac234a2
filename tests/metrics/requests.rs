//! Requests are measured by endpoint and status, never by what clients send.

use serde_json::json;

use super::{Scrape, start};
use crate::support::until;

fn count_of(method: &str, route: &str, status: &str) -> String {
    let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
    format!("waybill_http_request_duration_seconds_count{{{labels}}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_the_pattern_of_their_path_and_the_class_of_their_status() {
    let app = start(&[]).await;
    let id = app.publish_tagged("a").await;
    for path in [format!("/events/{id}"), format!("/events/{id}?include_logs=true"), "/events/999".into()] {
        app.get(&path).await;
    }
    app.client.head(format!("{}/events/{id}", app.base)).send().await.expect("a response");
    app.get("/events").await.expect(200);
    for path in ["/no/such/path", "/events/1/2/3"] {
        assert_eq!(app.get(path).await.status, 404);
    }
    app.delete("/events").await.problem(405, "method_not_allowed");
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.value(&count_of("POST", "/events", "2xx")), 1.0);
    assert_eq!(scrape.value(&count_of("GET", "/events", "2xx")), 1.0);
    assert_eq!(scrape.value(&count_of("GET", "/events/{id}", "2xx")), 3.0, "HEAD counts as GET");
    assert_eq!(scrape.value(&count_of("GET", "/events/{id}", "4xx")), 1.0);
    assert_eq!(scrape.value(&count_of("other", "other", "4xx")), 3.0);
    assert!(!scrape.samples.keys().any(|series| series.contains("no/such")));
    let sum = "waybill_http_request_duration_seconds_sum{method=\"POST\",route=\"/events\",status=\"2xx\"}";
    assert!(scrape.value(sum) > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_calls_are_counted_by_the_code_of_their_problem() {
    let app = start(&[]).await.with_admin_key().await;
    app.get("/events/999").await.problem(404, "event_not_found");
    app.post("/events", &json!({"tags": 1})).await.problem(400, "invalid_request");
    app.as_stranger().get("/events").await.problem(401, "unauthenticated");
    app.holder_of("read").await.post("/events", &json!({})).await.problem(403, "scope_missing");
    // A request that may be repeated is answered in another way.
    app.as_stranger().post("/events/claim", &json!({})).await.problem(401, "unauthenticated");
    app.post("/events/claim", &json!({})).await.problem(400, "invalid_request");
    let scrape = Scrape::of(&app).await;
    let refused =
        [("event_not_found", 1.0), ("invalid_request", 2.0), ("unauthenticated", 2.0), ("scope_missing", 1.0)];
    for (reason, calls) in refused {
        assert_eq!(scrape.value(&format!("waybill_calls_refused_total{{reason=\"{reason}\"}}")), calls, "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_workers_open_streams_and_connections_are_shown() {
    let app = start(&["--db-connections=3"]).await;
    let waiting = app.client.get(format!("{}/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60", app.base)).send();
    let waiting = tokio::spawn(waiting);
    let stream = app.client.get(format!("{}/logs/stream", app.base)).send().await.expect("a stream");
    until("both are shown", async || {
        let scrape = Scrape::of(&app).await;
        scrape.value("waybill_long_poll_waiters") == 1.0 && scrape.value("waybill_log_streams") == 1.0
    })
    .await;
    drop(stream);
    app.publish_tagged("a").await;
    waiting.await.expect("no panic").expect("a response");
    until("both are gone", async || {
        let scrape = Scrape::of(&app).await;
        scrape.value("waybill_long_poll_waiters") == 0.0 && scrape.value("waybill_log_streams") == 0.0
    })
    .await;
    let held = app.engine().database().connection().await.expect("a connection");
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.value("waybill_database_connections_max"), 3.0);
    assert!(scrape.value("waybill_database_connections{state=\"in_use\"}") >= 1.0);
    assert!(scrape.has("waybill_database_connections{state=\"idle\"}"));
    drop(held);
}
