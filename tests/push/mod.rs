//! Events are pushed: from publishing to a request that a real receiver got.

mod delivery;
mod signatures;
mod drain;
mod replays;

use serde_json::{Value, json};

use crate::support::App;

/// An event of a type and nothing else; answers what its publisher was told.
pub async fn publish(app: &App, event_type: &str, payload: Value) -> Value {
    app.post("/events", &json!({"event_type": event_type, "payload": payload})).await.expect(201).json()
}
