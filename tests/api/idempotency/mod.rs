//! Idempotency keys: an event that is published twice is stored once.

mod batches;
mod kept;
mod limits;
mod outcomes;
mod races;
mod single;

use serde_json::{Value, json};

use crate::support::{App, Reply};

/// Publishes with a header.
async fn publish_with(app: &App, name: &str, value: &str, event: &Value) -> Reply {
    let request = app.client.post(format!("{}/events", app.base)).header(name, value).json(event);
    Reply::of(request.send().await.expect("a response")).await
}

fn job(key: &str) -> Value {
    json!({"title": "a job", "tags": "a", "payload": {"n": 1}, "idempotency_key": key})
}

async fn events(app: &App) -> i64 {
    app.count("SELECT count(*) FROM waybill.events").await
}
