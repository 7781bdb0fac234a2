//! Every invalid input of the API, with its status and the field that the response names.

mod bodies;
mod fields;
mod harm;
mod ids;
mod queries;
mod routes;

use crate::support::{App, Reply};

/// Paths that take a JSON body, each with a body that it accepts.
const JSON_ROUTES: [(&str, &str); 15] = [
    ("/events", r#"{"title":"a job","tags":"email"}"#),
    ("/events/batch", r#"{"events":[{"title":"a job","tags":"email"}]}"#),
    ("/events/claim", r#"{"tags":["email"],"worker_id":"w:1"}"#),
    ("/events/settle", r#"{"worker_id":"w:1","settlements":[{"event_id":1,"action":"complete"}]}"#),
    ("/events/1/start", r#"{"worker_id":"w:1"}"#),
    ("/events/1/heartbeat", r#"{"worker_id":"w:1"}"#),
    ("/events/1/complete", r#"{"worker_id":"w:1"}"#),
    ("/events/1/fail", r#"{"worker_id":"w:1"}"#),
    ("/events/1/release", r#"{"worker_id":"w:1"}"#),
    ("/events/retry", r#"{"filter":{}}"#),
    ("/events/cancel", r#"{"filter":{}}"#),
    ("/events/reset", r#"{"filter":{}}"#),
    ("/deliveries/retry", r#"{"filter":{}}"#),
    ("/deliveries/cancel", r#"{"filter":{}}"#),
    ("/dead-letters/replay", r#"{"filter":{}}"#),
];

/// Sends a request with any method, and with a JSON body if there is one.
async fn request(app: &App, method: &str, path: &str, body: Option<&str>) -> Reply {
    let method: reqwest::Method = method.parse().expect("a method");
    let mut request = app.client.request(method, format!("{}{path}", app.base));
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_owned());
    }
    Reply::of(request.send().await.expect("a response")).await
}
