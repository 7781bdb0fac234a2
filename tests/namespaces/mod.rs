//! Namespaces: how they are made and named, and that two of them never meet, however much they have in common.

mod fairness;
mod ids;
mod lists;
mod manage;
mod operate;
mod pull;
mod push;
mod servers;
mod sweeps;

use serde_json::Value;

use crate::support::App;

/// Two namespaces of one server.
async fn two_namespaces(app: &App) -> (App, App) {
    (app.namespace("north").await, app.namespace("south").await)
}

fn id_of(view: &Value) -> i64 {
    view["id"].as_i64().expect("an id")
}
