//! `/sources` and `/in/{token}`.

mod bodies;
mod create;
mod guesses;
mod manage;
mod presets;
mod receive;
mod refusals;
mod rotation;
mod schemes;
mod servers;

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::sources::github_signature;
use crate::support::{App, Reply};

const SECRET: &str = "It's a Secret to Everybody";

fn path_of(source: &Value) -> String {
    format!("/sources/{}", source["id"])
}

async fn github_source(app: &App) -> Value {
    app.source(json!({"name": "our repository", "provider": "github", "verify": {"secret": SECRET}})).await
}

/// Sends another webhook as GitHub does, signed with a secret.
async fn send_as_github(app: &App, source: &Value, secret: &str, body: &str) -> Reply {
    static DELIVERIES: AtomicUsize = AtomicUsize::new(0);
    let delivery = format!("72d3162e-cc78-11e3-81ab-{:012}", DELIVERIES.fetch_add(1, Ordering::Relaxed));
    send_delivery(app, source, secret, &delivery, body).await
}

async fn send_delivery(app: &App, source: &Value, secret: &str, delivery: &str, body: &str) -> Reply {
    let signature = github_signature(secret, body);
    let headers = [
        ("content-type", "application/json"),
        ("user-agent", "GitHub-Hookshot/044aadd"),
        ("x-github-event", "push"),
        ("x-github-delivery", delivery),
        ("x-hub-signature-256", &signature),
    ];
    app.send_webhook(source, &headers, body).await
}
