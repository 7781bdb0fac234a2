//! `GET /audit`: who changed what is not about one event.

mod list;
mod refused_calls;
mod subscriptions;

use serde_json::Value;

use crate::support::App;

/// Returns the entries that match a query.
async fn audit(app: &App, query: &str) -> Vec<Value> {
    app.get(&format!("/audit?{query}")).await.expect(200).json()["entries"].as_array().expect("entries").clone()
}

/// Returns the actions of all entries, oldest first.
async fn actions(app: &App) -> Vec<String> {
    let entries = audit(app, "").await;
    entries.iter().map(|entry| entry["action"].as_str().expect("an action").to_owned()).collect()
}
