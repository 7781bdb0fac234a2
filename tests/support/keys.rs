//! API keys of servers under test.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::{App, client};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A key that was made in a test.
#[derive(Debug, Clone)]
pub(crate) struct MadeKey {
    pub id: i64,
    pub key: String,
}

impl MadeKey {
    pub(crate) fn of(made: &Value) -> Self {
        let key = made["key"].as_str().unwrap_or_else(|| panic!("no key in {made}")).to_owned();
        MadeKey { id: made["id"].as_i64().expect("an id"), key }
    }
}

impl App {
    /// Makes the first key, and uses it from now on: it may do everything.
    pub(crate) async fn with_admin_key(mut self) -> Self {
        let made = self.make_key(json!({"name": "the admin", "scopes": ["admin"]})).await;
        self.client = client::with_key(&made.key);
        self
    }

    /// Starts a server that requires keys, with one that may do everything.
    pub(crate) async fn with_keys() -> Self {
        App::start().await.with_admin_key().await
    }

    /// Makes a key with these fields. Without a name it gets one of its own.
    pub(crate) async fn make_key(&self, mut fields: Value) -> MadeKey {
        if fields.get("name").is_none() {
            fields["name"] = format!("key {}", NEXT.fetch_add(1, Ordering::Relaxed)).into();
        }
        MadeKey::of(&self.post("/keys", &fields).await.expect(201).json())
    }

    /// Makes a key with one scope, and returns the server as its holder sees it.
    pub(crate) async fn holder_of(&self, scope: &str) -> App {
        self.holding(&self.make_key(json!({"scopes": [scope]})).await)
    }

    /// Returns the server as the holder of a key sees it.
    pub(crate) fn holding(&self, key: &MadeKey) -> App {
        self.sending(&key.key)
    }

    /// Returns the server as somebody with these credentials sees it.
    pub(crate) fn sending(&self, key: &str) -> App {
        App { server: None, url: self.url.clone(), base: self.base.clone(), client: client::with_key(key) }
    }

    /// Uses a key from now on.
    pub(crate) fn using(mut self, key: &MadeKey) -> App {
        self.client = client::with_key(&key.key);
        self
    }

    /// Returns the server as somebody without a key sees it.
    pub(crate) fn as_stranger(&self) -> App {
        App { server: None, url: self.url.clone(), base: self.base.clone(), client: client::http_client() }
    }
}
