//! Requests: those that failed and those that were slow have a line at `info`, the others have not.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{line_about, lines_about, start};
use crate::support::{App, Reply, database, until};

/// Makes the first key, which has this name, and returns the server as its holder sees it.
async fn with_key(app: &App, name: &str) -> (App, String) {
    let key = app.make_key(json!({"name": name, "scopes": ["admin", "reveal"]})).await;
    (app.holding(&key), key.key)
}

/// Breaks what `GET /audit` reads.
async fn break_audit(url: &str) {
    database::execute(url, "ALTER TABLE waybill.audit_log RENAME TO audit_log_is_gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_failed_is_one_line_with_its_route_key_and_id() {
    let (server, url) = start(&["--log-format", "json"]).await;
    let (app, _) = with_key(&server.app, "the night shift").await;
    break_audit(&url).await;
    let request = app.client.get(format!("{}/audit?limit=1", app.base)).header("x-request-id", "r-1");
    Reply::of(request.send().await.expect("a response")).await.problem(500, "internal_error");
    let line = line_about(&server, "a request failed").await;
    let expected = json!({"method": "GET", "route": "/audit", "status": 500, "code": "internal_error",
                          "key": "the night shift", "namespace_id": 1, "request_id": "r-1", "level": "INFO"});
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&line[field], value, "{field} in {line}");
    }
    assert!(line["ms"].is_u64(), "{line}");
    let cause = server.stderr().lines().filter(|line| line.contains("\"ERROR\"") && line.contains("r-1")).count();
    assert_eq!(cause, 1, "the cause has a line with the same id");
    assert_eq!(lines_about(&server, "a request failed").len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_ordinary_requests_have_no_line_at_info_and_one_at_debug() {
    let (server, _) = start(&["--log-format", "json", "--slow-request-ms", "3600000"]).await;
    server.app.publish_tagged("a").await;
    server.app.get("/events/999").await.problem(404, "event_not_found");
    assert!(!server.stderr().contains("\"route\""), "{}", server.stderr());
    server.stop().await;
    let (server, _) = start(&["--log-format", "json", "--log", "debug"]).await;
    server.app.get("/events/999").await.problem(404, "event_not_found");
    let line = line_about(&server, "request").await;
    assert_eq!((&line["route"], &line["path"]), (&json!("/events/{id}"), &json!("/events/999")));
    assert_eq!((&line["status"], &line["code"]), (&json!(404), &json!("event_not_found")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_request_is_logged_and_one_that_waits_for_events_is_not() {
    let (server, _) = start(&["--log-format", "json", "--slow-request-ms", "1000"]).await;
    let app = &server.app;
    let began = Instant::now();
    let waiting = app.client.get(format!("{}/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60", app.base)).send();
    let waiting = tokio::spawn(waiting);
    let too_long = Duration::from_millis(1_500);
    until("it has waited for longer than requests may take", async || began.elapsed() > too_long).await;
    app.publish_tagged("a").await;
    assert_eq!(waiting.await.expect("no panic").expect("a response").status(), 200);
    let of_waiting = |line: &serde_json::Value| line["route"] == "/events/subscribe";
    assert!(!lines_about(&server, "a request was slow").iter().any(of_waiting), "{}", server.stderr());
    server.stop().await;

    let (server, _) = start(&["--log-format", "json", "--slow-request-ms", "1"]).await;
    server.app.publish_tagged("a").await;
    let line = line_about(&server, "a request was slow").await;
    assert_eq!((&line["route"], &line["status"]), (&json!("/events"), &json!(201)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_format_of_the_log_ever_has_a_payload_an_error_text_or_a_key() {
    for format in ["text", "json"] {
        let flags = ["--log-format", format, "--log", "debug", "--slow-request-ms", "1", "--backoff-seconds", "0"];
        let (server, url) = start(&flags).await;
        let (app, key) = with_key(&server.app, "the night shift").await;
        let id = app.publish(json!({"title": "t1tle", "tags": "a", "payload": {"card": "p4yload"}})).await;
        app.claim("a", "w:1").await.expect("an event");
        let failure = json!({"worker_id": "w:1", "error_message": "wrong card p4yload", "retryable": true});
        app.post(&format!("/events/{id}/fail"), &failure).await.expect(200);
        app.claim("a", "w:1").await.expect("the same event");
        app.post(&format!("/events/{id}/complete"), &json!({"worker_id": "w:1", "result": "p4yload"}))
            .await
            .expect(200);
        app.get("/events?text=p4yload").await.expect(200);
        app.as_stranger().sending("wb_n0_such_key").get("/events").await.problem(401, "unauthenticated");
        break_audit(&url).await;
        app.get("/audit").await.problem(500, "internal_error");
        until("all of it is logged", async || {
            let log = server.stderr();
            ["a retry was scheduled", "a request failed", "the night shift"].iter().all(|text| log.contains(text))
        })
        .await;
        for secret in ["p4yload", "t1tle", "n0_such_key", &key[3..], &key] {
            assert!(!server.stderr().contains(secret), "{secret} in {}", server.stderr());
        }
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_text_carry_the_same_fields() {
    let (server, url) = start(&["--log-format", "text"]).await;
    let (app, _) = with_key(&server.app, "the night shift").await;
    break_audit(&url).await;
    app.get("/audit").await.problem(500, "internal_error");
    let mut line = String::new();
    until("it is logged", async || {
        let log = server.stderr();
        line = log.lines().find(|line| line.contains("a request failed")).unwrap_or_default().to_owned();
        line.contains("request_id=")
    })
    .await;
    for field in [" INFO ", " method=GET", " route=/audit", " status=500", " key=the night shift", " namespace_id=1"] {
        assert!(line.contains(field), "{field} in {line}");
    }
    server.stop().await;
}
