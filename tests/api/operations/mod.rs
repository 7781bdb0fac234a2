//! Operations: bulk work on events, deliveries and dead letters, and `/operations`.

mod cost;
mod failures;
mod input;
mod kinds;
mod list;
mod pace;
mod parts;
mod servers;

use serde_json::{Value, json};

use crate::support::App;

/// Publishes `count` events that wait. Returns their ids.
async fn waiting(app: &App, count: usize) -> Vec<i64> {
    let events: Vec<Value> = (0..count).map(|_| json!({"title": "a job", "tags": "a"})).collect();
    let published = app.post("/events/batch", &json!({"events": events})).await.expect(201).json();
    crate::support::work::ids(published["events"].as_array().expect("events"))
}

/// Returns the number of log lines with this action.
async fn lines(app: &App, action: &str) -> i64 {
    app.count(&format!("SELECT count(*) FROM waybill.event_log WHERE action = '{action}'")).await
}

#[track_caller]
fn assert_counts(operation: &Value, done: i64, skipped: i64, failed: i64) {
    let counts = [&operation["done"], &operation["skipped"], &operation["failed"]];
    assert_eq!(counts, [&json!(done), &json!(skipped), &json!(failed)], "{operation}");
}
