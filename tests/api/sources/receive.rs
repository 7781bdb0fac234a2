//! `POST /in/{token}`: webhooks become events.

use reqwest::header::HeaderValue;
use serde_json::json;

use super::{SECRET, github_source, path_of, send_as_github, send_delivery};
use crate::support::sources::{github_signature, hmac_hex};
use crate::support::{App, Reply};

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_becomes_an_event_that_workers_and_subscribers_get() {
    let app = App::with_keys().await;
    let fields = json!({
        "provider": "github", "verify": {"secret": SECRET}, "tags": ["ci", "git"], "labels": {"from": "github"},
    });
    let source = app.source(fields).await;
    app.subscribe("https://shop.example/hook", json!({"event_types": ["push"]})).await;
    let body = "{\"ref\": \"refs/heads/main\",  \"forced\":false, \"size\":1.0}";
    let reply = send_as_github(&app, &source, SECRET, body).await.expect(202);
    assert_eq!(reply.text, "");
    let event = app.only_event().await;
    assert_eq!((&event["event_type"], &event["title"]), (&json!("push"), &json!("push")));
    assert_eq!((&event["tags"], &event["labels"]), (&json!("ci,git"), &json!({"from": "github"})));
    let id = event["id"].as_i64().expect("an id");
    assert_eq!(app.deliveries_of(id).await.len(), 1);
    let claimed = app.get("/events/subscribe?tags=ci&worker_id=w:1").await.expect(200);
    assert!(claimed.text.contains(body), "the payload is kept byte for byte: {}", claimed.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_headers_and_query_parameters_are_accepted() {
    let app = App::with_keys().await;
    let source = github_source(&app).await;
    let signature = github_signature(SECRET, "{}");
    let path = format!("{}?colour=red&colour=%FF&a", source["path"].as_str().expect("a path"));
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = app.as_stranger().client.post(format!("{}{path}", app.base)).body("{}");
    let request = request
        .header("authorization", "Bearer wb_garbage")
        .header("idempotency-key", "\"x\"")
        .header("waybill-namespace", "nowhere")
        .header("x-odd", HeaderValue::from_bytes(b"\xff").expect("a value"))
        .header("traceparent", traceparent)
        .header("x-hub-signature-256", signature);
    Reply::of(request.send().await.expect("a response")).await.expect(202);
    let event = app.only_event().await;
    assert_eq!((&event["event_type"], &event["traceparent"]), (&json!("our repository"), &json!(traceparent)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_cannot_be_verified_is_refused_counted_and_not_stored() {
    let app = App::start().await;
    let (source, other) = (github_source(&app).await, github_source(&app).await);
    let problem = send_as_github(&app, &source, "wrong", "{}").await.problem(401, "webhook_refused");
    assert!(problem["detail"].as_str().expect("a detail").contains("does not match"), "{problem}");
    let signature = github_signature(SECRET, "{}");
    let signed = [("x-hub-signature-256", signature.as_str())];
    app.send_webhook(&source, &signed, "{ }").await.problem(401, "webhook_refused");
    let problem = app.send_webhook(&source, &[], "{}").await.problem(401, "webhook_refused");
    assert!(problem["detail"].as_str().expect("a detail").contains("X-Hub-Signature-256 is missing"), "{problem}");
    assert_eq!(app.stored_events().await, 0);
    let refused = app.get(&path_of(&source)).await.expect(200).json()["refused"].clone();
    assert_eq!((&refused["webhooks"], &refused["last_reason"]), (&json!(3), &json!("missing")));
    assert!(refused["last_at"].is_string(), "{refused}");
    send_as_github(&app, &other, "wrong", "{}").await.problem(401, "webhook_refused");
    let list = app.get("/sources").await.expect(200).json();
    assert_eq!(list["sources"][0]["refused"]["webhooks"], 3);
    assert_eq!(list["sources"][1]["refused"]["webhooks"], 1);
    assert_eq!(list["sources"][0]["version"], 1, "a refused webhook is no change of the source");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_webhooks_are_counted_in_the_metrics_by_reason() {
    let app = App::start().await;
    let (source, other) = (github_source(&app).await, github_source(&app).await);
    let refused = async || {
        let text = app.get("/metrics").await.expect(200).text;
        let lines = text.lines().filter_map(|line| line.strip_prefix("waybill_webhooks_refused_total"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(refused().await, [""; 0]);
    send_as_github(&app, &source, "wrong", "{}").await.problem(401, "webhook_refused");
    send_as_github(&app, &other, "wrong", "{}").await.problem(401, "webhook_refused");
    app.send_webhook(&source, &[], "{}").await.problem(401, "webhook_refused");
    app.send_webhook(&source, &[("x-hub-signature-256", "sha1=00")], "{}").await.problem(401, "webhook_refused");
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    let expected = ["{reason=\"malformed\"} 1", "{reason=\"mismatch\"} 2", "{reason=\"missing\"} 1"];
    assert_eq!(refused().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_webhooks_are_recorded_when_the_server_stops() {
    let app = App::start().await;
    let source = github_source(&app).await;
    send_as_github(&app, &source, "wrong", "{}").await.problem(401, "webhook_refused");
    let url = app.url.clone();
    app.stop().await;
    let recorded = "SELECT sum(refused) FROM waybill.sources";
    assert_eq!(crate::support::database::count(&url, recorded).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_webhook_is_answered_like_the_first() {
    let app = App::start().await;
    let source = github_source(&app).await;
    let replies = [
        send_delivery(&app, &source, SECRET, "d-1", "{}").await.expect(202),
        send_delivery(&app, &source, SECRET, "d-1", "{}").await.expect(202),
    ];
    assert_eq!(replies[0].text, replies[1].text);
    assert_eq!(app.stored_events().await, 1, "the second one is a repetition");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_says_how_webhooks_are_answered() {
    let app = App::start().await;
    let body = "<Response/>";
    for (respond, status, text) in [
        (json!({"status": 204}), 204, ""),
        (json!({"status": 200, "body": body, "content_type": "text/xml"}), 200, body),
        (json!({"body": "é"}), 202, "é"),
        (json!({"body": "<script>x</script>", "content_type": "text/html"}), 202, "<script>x</script>"),
    ] {
        let source = app.source(json!({"verify": {"scheme": "none"}, "respond": respond})).await;
        let reply = app.send_webhook(&source, &[], "{}").await.expect(status);
        assert_eq!(reply.text, text);
        if !text.is_empty() {
            assert_eq!(reply.header("content-type"), source["respond"]["content_type"].as_str());
        }
        // A page of somebody who edits sources has nothing of the origin of the dashboard.
        assert_eq!(reply.header("content-security-policy"), Some("sandbox; default-src 'none'"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_gets_its_challenge_back_if_it_has_signed_the_request() {
    let app = App::start().await;
    let source = app.source(json!({"provider": "slack", "verify": {"secret": SECRET}})).await;
    let body = r#"{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595","type":"url_verification"}"#;
    let now = chrono::Utc::now().timestamp().to_string();
    let sign = |secret: &str, body: &str| format!("v0={}", hmac_hex(secret, format!("v0:{now}:{body}").as_bytes()));
    let send = async |secret: &str, body: &str| {
        let signature = sign(secret, body);
        let headers = [
            ("content-type", "application/json"),
            ("x-slack-request-timestamp", now.as_str()),
            ("x-slack-signature", signature.as_str()),
        ];
        app.send_webhook(&source, &headers, body).await
    };
    send("wrong", body).await.problem(401, "webhook_refused");
    let reply = send(SECRET, body).await.expect(200);
    assert_eq!(reply.json(), json!({"challenge": "3eZbrw1aBm2rZgRNFdxV2595"}));
    assert_eq!(app.stored_events().await, 0, "a handshake is no event");
    let event = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}"#;
    assert_eq!(send(SECRET, event).await.expect(200).text, "");
    assert_eq!(app.only_event().await["event_type"], "app_mention");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_are_refused() {
    let app = App::start().await;
    let source = github_source(&app).await;
    let path = source["path"].as_str().expect("a path");
    let reply = app.get(path).await;
    assert_eq!(reply.header("allow"), Some("POST, OPTIONS"));
    reply.problem(405, "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_sent_again_is_answered_alike_and_stored_once() {
    let app = App::start().await;
    let (one, other) = (github_source(&app).await, github_source(&app).await);
    for body in ["{}", "{}", r#"{"n": 1}"#] {
        send_delivery(&app, &one, SECRET, "d-1", body).await.expect(202);
    }
    let event = app.only_event().await;
    assert_eq!((&event["idempotency_key"], &event["client_address"]), (&json!("d-1"), &json!("127.0.0.1")));
    assert!(event["published_by"].as_str().expect("a source").starts_with("source:"), "{event}");
    send_delivery(&app, &other, SECRET, "d-1", "{}").await.expect(202);
    assert_eq!(app.stored_events().await, 2);
}
