//! A flood of notable events does not flood the log.

use serde_json::{Value, json};

use super::{lines_about, start};
use crate::support::until;

/// The number of events that fail at once.
const EVENTS: usize = 200;

/// The lines that are written of a kind in a window, as `docs/configuration.md` says.
const LINES_PER_KIND: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn of_many_retries_at_once_some_are_logged_and_the_others_are_counted() {
    let (server, _) = start(&["--log-format", "json"]).await;
    let app = &server.app;
    let events = vec![json!({"title": "t", "tags": "a"}); EVENTS];
    app.post("/events/batch", &json!({ "events": events })).await.expect(201);
    let mut settlements = Vec::new();
    while settlements.len() < EVENTS {
        let body = json!({"tags": ["a"], "worker_id": "w:1", "max": 100});
        let claimed = app.post("/events/claim", &body).await.expect(200).json();
        let claimed = claimed["events"].as_array().expect("events");
        let failure = |event: &Value| json!({"event_id": event["id"], "action": "fail", "lease_id": event["lease_id"]});
        settlements.extend(claimed.iter().map(failure));
    }
    for part in settlements.chunks(100) {
        let body = json!({"worker_id": "w:1", "settlements": part});
        app.post("/events/settle", &body).await.expect(200);
    }
    let written = || lines_about(&server, "a retry was scheduled").len();
    let suppressed = || {
        let lines = lines_about(&server, "more lines of this kind were suppressed");
        lines
            .iter()
            .filter(|line| line["kind"] == "retry_scheduled")
            .filter_map(|line| line["lines"].as_u64())
            .sum::<u64>()
    };
    until("the suppressed lines are counted", async || written() + suppressed() as usize == EVENTS).await;
    // Two calls may fall into two windows.
    assert!((LINES_PER_KIND..=2 * LINES_PER_KIND).contains(&written()), "{}", written());
    server.stop().await;
}
