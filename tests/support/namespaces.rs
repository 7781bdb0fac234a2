//! Namespaces: the same server as the callers of one namespace see it.

use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::json;

use super::{App, Reply, http_client_with};

impl App {
    /// Creates a namespace, and returns the server as its callers see it.
    pub(crate) async fn namespace(&self, name: &str) -> App {
        self.post("/namespaces", &json!({"name": name})).await.expect(201);
        self.in_namespace(name)
    }

    /// Creates a namespace and a key of it, and returns the server as the holder of the key sees it. `self` must be an
    /// administrator.
    pub(crate) async fn team(&self, name: &str) -> App {
        self.post("/namespaces", &json!({"name": name})).await.expect(201);
        let key = json!({"name": format!("the admin of {name}"), "scopes": ["admin"]});
        let request = self.client.post(format!("{}/keys", self.base)).header("Waybill-Namespace", name).json(&key);
        let made = Reply::of(request.send().await.expect("a response")).await.expect(201).json();
        self.sending(made["key"].as_str().expect("a key"))
    }

    /// Returns the server as callers of a namespace see it: every request names the namespace. Only `self` can stop the
    /// server.
    pub(crate) fn in_namespace(&self, name: &str) -> App {
        let mut headers = HeaderMap::new();
        headers.insert("Waybill-Namespace", HeaderValue::from_str(name).expect("a header"));
        App { server: None, url: self.url.clone(), base: self.base.clone(), client: http_client_with(headers) }
    }
}
