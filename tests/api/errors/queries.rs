//! Query parameters that are invalid, unknown or given twice.

use super::{JSON_ROUTES, request};
use crate::support::App;

/// Sends each query and asserts that the response names exactly `named`.
async fn refuses(app: &App, method: &str, path: &str, named: &str, queries: &[&str]) {
    for query in queries {
        let reply = request(app, method, &format!("{path}?{query}"), None).await;
        assert_eq!(reply.status, 400, "{path}?{query}: {}", reply.text);
        reply.names(&[named]);
    }
}

/// Does the same for one parameter and many values.
async fn refuses_values(app: &App, method: &str, path: &str, name: &str, values: &[&str]) {
    for value in values {
        refuses(app, method, path, name, &[&format!("{name}={value}")]).await;
    }
}

fn long(characters: usize) -> String {
    "x".repeat(characters)
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_of_events_are_checked() {
    let app = App::start().await;
    let many = (0..33).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let times = ["", "yesterday", "2026-01-31", "2026-13-01T00:00:00Z", "1767225600", "2026-01-31T09:30:00"];
    let tags = ["", "%20", "a,,b", "a,", "%00", "a%07b", &many, &long(101)];
    for (method, path) in [("GET", "/events")] {
        refuses_values(&app, method, path, "status", &["", "failed", "DONE", "FAILED,CANCELLED"]).await;
        refuses_values(&app, method, path, "tags", &tags).await;
        refuses_values(&app, method, path, "event_type", &["", "a%00b", &long(256)]).await;
        refuses_values(&app, method, path, "worker_id", &["", "nobody", "a:b", "a%00:1"]).await;
        refuses_values(&app, method, path, "correlation_id", &["", "%00", &long(256)]).await;
        refuses_values(&app, method, path, "since", &times).await;
        refuses_values(&app, method, path, "until", &times).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paging_parameters_of_all_lists_are_checked() {
    let app = App::start().await;
    let too_long = long(513);
    let cursors = ["", "17", "x", "abcdefgh_17", "a%00b", "~", "%F0%9F%98%80", "===", &too_long];
    for path in ["/events", "/logs", "/subscriptions", "/deliveries", "/dead-letters", "/workers", "/tags"] {
        refuses_values(&app, "GET", path, "order", &["", "up", "DESC"]).await;
        refuses_values(&app, "GET", path, "limit", &["", "0", "501", "-1", "ten", "1.5", "1e1"]).await;
        refuses_values(&app, "GET", path, "after", &cursors).await;
    }
    refuses_values(&app, "GET", "/events", "offset", &["", "-1", "x", "9223372036854775808"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_range_that_ends_before_it_begins_is_refused_by_all_lists() {
    let app = App::start().await;
    let (early, late) = ("2026-01-31T09:30:00Z", "2026-01-31T10:30:00%2B00:30");
    for path in ["/events", "/logs", "/deliveries", "/dead-letters"] {
        request(&app, "GET", &format!("{path}?since={early}&until={late}"), None).await.expect(200);
        refuses(&app, "GET", path, "until", &[&format!("since={late}&until={early}")]).await;
        refuses(&app, "GET", path, "until", &[&format!("since={early}&until={early}")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn include_logs_must_be_true_or_false() {
    let app = App::start().await;
    refuses_values(&app, "GET", "/events/1", "include_logs", &["", "yes", "1", "TRUE"]).await;
    refuses(&app, "GET", "/events/1", "include_logs", &["include_logs"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_subscribe_are_checked() {
    let app = App::start().await;
    let path = "/events/subscribe";
    request(&app, "GET", path, None).await.names(&["tags", "worker_id"]);
    for value in ["", ",", "a,,b", "%00", &long(101)] {
        refuses(&app, "GET", path, "tags", &[&format!("worker_id=w:1&tags={value}")]).await;
    }
    for value in ["", "w", "w:", ":1", "w:x", "w%00:1", "a,b:1", "a%20b:1", "w:12345678901"] {
        refuses(&app, "GET", path, "worker_id", &[&format!("tags=email&worker_id={value}")]).await;
    }
    let path = "/events/subscribe?tags=email&worker_id=w:1";
    let numbers = [
        ("wait_seconds", ["", "-1", "61", "60.5", "forever"]),
        ("max", ["", "0", "1", "1001", "all"]),
        ("lease_seconds", ["", "0", "43201", "-1", "99999999999999"]),
    ];
    for (name, values) in numbers {
        for value in values {
            request(&app, "GET", &format!("{path}&{name}={value}"), None).await.names(&[name]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_workers_about_an_event_take_no_parameters() {
    let app = App::start().await;
    for verb in ["start", "heartbeat", "complete", "fail", "release"] {
        let path = format!("/events/1/{verb}?next=true&tags=email");
        request(&app, "POST", &path, Some(r#"{"worker_id":"w:1"}"#)).await.names(&["next", "tags"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_of_the_log_are_checked() {
    let app = App::start().await;
    refuses_values(&app, "GET", "/logs", "event_id", &["", "0", "-1", "x", "9007199254740992"]).await;
    refuses_values(&app, "GET", "/logs", "worker_id", &["", "nobody"]).await;
    refuses_values(&app, "GET", "/logs", "action", &["", "picked", "LOST"]).await;
    refuses_values(&app, "GET", "/logs", "since", &["", "yesterday", "2026-01-31"]).await;
    refuses_values(&app, "GET", "/logs", "until", &["", "yesterday", "2026-01-31"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_operators_verbs_are_checked() {
    let app = App::start().await;
    for path in ["/events/1/reset", "/events/1/retry", "/events/1/cancel"] {
        refuses_values(&app, "POST", path, "reason", &["", "a%00b", &long(256)]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_given_twice_is_refused() {
    let app = App::start().await;
    let cases = [
        ("/events", "limit=1&limit=1", "limit"),
        ("/events", "status=FAILED&status=CANCELLED", "status"),
        ("/events/1", "include_logs=true&include_logs=true", "include_logs"),
        ("/events/subscribe", "worker_id=w:1&tags=email&tags=sms", "tags"),
        ("/logs", "event_id=1&event_id=2", "event_id"),
        ("/workers", "limit=1&l%69mit=2", "limit"),
        ("/tags", "order=asc&order=desc", "order"),
    ];
    for (path, query, named) in cases {
        refuses(&app, "GET", path, named, &[query]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_is_not_utf_8_is_refused() {
    let app = App::start().await;
    for (path, name) in [("/events", "tags"), ("/events", "event_type"), ("/workers", "after")] {
        refuses_values(&app, "GET", path, name, &["%FF", "a%C3%28", "%ED%A0%80"]).await;
    }
    refuses_values(&app, "POST", "/events/1/reset", "reason", &["%FF"]).await;
    refuses(&app, "GET", "/events", "query", &["%FF=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_parameter_is_named_on_every_route() {
    let app = App::start().await;
    let lists =
        ["/events?", "/events/1?", "/events/subscribe?tags=email&worker_id=w:1&", "/logs?", "/workers?", "/tags?"];
    let plain = ["/health?", "/ready?", "/openapi.yaml?", "/docs?"];
    for path in lists.into_iter().chain(plain) {
        request(&app, "GET", &format!("{path}colour=red&Limit=5"), None).await.names(&["Limit", "colour"]);
    }
    for path in ["/events/1/reset", "/events/1/retry", "/events/1/cancel"] {
        request(&app, "POST", &format!("{path}?colour=red"), None).await.names(&["colour"]);
    }
    for (path, good) in JSON_ROUTES {
        request(&app, "POST", &format!("{path}?colour=red"), Some(good)).await.names(&["colour"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn query_parameters_sent_in_a_body_are_refused() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    app.claim("email", "w:1").await.expect("an event");
    let body = r#"{"reason":"worker_timeout","dry_run":true}"#;
    request(&app, "POST", &format!("/events/{id}/reset"), Some(body)).await.names(&["dry_run", "reason"]);
    assert_eq!(app.event(id).await["status"], "PROCESSING");
    request(&app, "POST", &format!("/events/{id}/cancel"), Some("{}")).await.expect(200);
}
