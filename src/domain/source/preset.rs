//! The settings of well-known providers, as they document them.

use serde_json::{Map, Value, json};

/// The names of all providers.
pub(crate) const PROVIDERS: [&str; 8] =
    ["github", "stripe", "slack", "shopify", "standard", "gitlab", "gitea", "linear"];

/// Returns the names of all providers, for error texts.
pub(super) fn names() -> String {
    PROVIDERS.join(", ")
}

/// Returns the name of a provider, or `None` if it is unknown.
pub(super) fn provider(name: &str) -> Option<&'static str> {
    PROVIDERS.into_iter().find(|known| *known == name)
}

/// Returns the settings that a source of a provider has if its owner gives no others.
pub(super) fn settings(provider: &str) -> Map<String, Value> {
    let settings = match provider {
        "github" => github(),
        "stripe" => stripe(),
        "slack" => slack(),
        "shopify" => shopify(),
        "standard" => standard(),
        "gitlab" => gitlab(),
        "gitea" => gitea(),
        "linear" => linear(),
        _ => Value::Null,
    };
    settings.as_object().cloned().unwrap_or_default()
}

fn github() -> Value {
    json!({
        "verify": {"scheme": "github"},
        "event_type_from": {"header": "X-GitHub-Event"},
        // The same for every delivery of an event.
        "idempotency_key_from": {"header": "X-GitHub-Delivery"},
    })
}

fn stripe() -> Value {
    json!({
        "verify": {"scheme": "stripe"},
        "event_type_from": {"path": "type"},
        "idempotency_key_from": {"path": "id"},
    })
}

fn slack() -> Value {
    json!({
        "verify": {"scheme": "slack"},
        "event_type_from": {"path": "event.type"},
        "idempotency_key_from": {"path": "event_id"},
        // For interactive requests, Slack takes nothing else for a success.
        "respond": {"status": 200},
    })
}

fn shopify() -> Value {
    json!({
        "verify": {"scheme": "shopify"},
        "event_type_from": {"header": "X-Shopify-Topic"},
        "idempotency_key_from": {"header": "X-Shopify-Webhook-Id"},
    })
}

fn standard() -> Value {
    json!({
        "verify": {"scheme": "standard"},
        "event_type_from": {"path": "type"},
        "idempotency_key_from": {"header": "webhook-id"},
    })
}

fn gitlab() -> Value {
    json!({
        "verify": {"scheme": "token", "header": "X-Gitlab-Token"},
        "event_type_from": {"header": "X-Gitlab-Event"},
        // Retries of a webhook have the same key.
        "idempotency_key_from": {"header": "Idempotency-Key"},
    })
}

fn gitea() -> Value {
    json!({
        "verify": {"scheme": "hmac", "header": "X-Gitea-Signature"},
        "event_type_from": {"header": "X-Gitea-Event"},
        "idempotency_key_from": {"header": "X-Gitea-Delivery"},
    })
}

fn linear() -> Value {
    json!({
        "verify": {"scheme": "hmac", "header": "Linear-Signature"},
        "event_type_from": {"header": "Linear-Event"},
        "idempotency_key_from": {"header": "Linear-Delivery"},
    })
}
