//! Sources, and the webhooks that other systems send to them.

use ring::hmac::{self, HMAC_SHA256, Key};
use serde_json::{Value, json};

use super::{App, Reply};

impl App {
    /// Creates a source with these fields. Without a name it gets one.
    pub(crate) async fn source(&self, mut fields: Value) -> Value {
        if fields.get("name").is_none() {
            fields["name"] = json!("a source");
        }
        self.post("/sources", &fields).await.expect(201).json()
    }

    /// Sends a webhook to a source, as somebody without a key.
    pub(crate) async fn send_webhook(
        &self,
        source: &Value,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Reply {
        self.send_webhook_to(source["path"].as_str().expect("a path"), headers, body).await
    }

    /// Sends a webhook to a path, as somebody without a key.
    pub(crate) async fn send_webhook_to(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Reply {
        let request = self.as_stranger().client.post(format!("{}{path}", self.base)).body(body.into());
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Reply::of(request.send().await.expect("a response")).await
    }

    /// Returns all events of the namespace, oldest first, with their payloads.
    pub(crate) async fn all_events(&self) -> Vec<Value> {
        let list = self.get("/events?limit=500").await.expect(200).json();
        let mut events = Vec::new();
        for event in list["events"].as_array().expect("events") {
            events.push(self.event(event["id"].as_i64().expect("an id")).await);
        }
        events
    }

    /// Returns the only event of the namespace.
    pub(crate) async fn only_event(&self) -> Value {
        let mut events = self.all_events().await;
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Returns the number of stored events, of all namespaces.
    pub(crate) async fn stored_events(&self) -> i64 {
        self.count("SELECT count(*) FROM waybill.events").await
    }
}

/// Returns the HMAC-SHA256 of a message in hexadecimal digits.
pub(crate) fn hmac_hex(secret: &str, message: &[u8]) -> String {
    let tag = hmac::sign(&Key::new(HMAC_SHA256, secret.as_bytes()), message);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Returns the header with which GitHub signs a body.
pub(crate) fn github_signature(secret: &str, body: &str) -> String {
    format!("sha256={}", hmac_hex(secret, body.as_bytes()))
}
