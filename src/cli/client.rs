//! A small HTTP client for commands that ask a server.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Response};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::config::ServerArgs;
use crate::startup::StartError;

/// The time that a command waits for the server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server, and the key to call it with.
pub(crate) struct ApiClient {
    http: reqwest::Client,
    url: String,
    key: Option<String>,
}

impl ApiClient {
    pub(crate) fn new(args: &ServerArgs) -> Result<Self, StartError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A proxy of the environment, which is meant for other destinations, must not see the key.
        let http = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).timeout(TIMEOUT);
        let http = http.build().map_err(|error| failed(&error))?;
        Ok(ApiClient { http, url: args.url.trim_end_matches('/').to_owned(), key: args.key.clone() })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, StartError> {
        self.request(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, StartError> {
        self.request(Method::POST, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value, StartError> {
        self.request(Method::PATCH, path, Some(body)).await
    }

    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, StartError> {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let unreachable = |error: reqwest::Error| {
            StartError::Command(format!("{} does not answer: {}", self.url, error.without_url()))
        };
        read(request.send().await.map_err(unreachable)?).await
    }
}

/// Returns the JSON of a response, or the problem that it reports.
async fn read(response: Response) -> Result<Value, StartError> {
    let status = response.status();
    let body = response.bytes().await.map_err(|error| failed(&error))?;
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status.is_success() {
        return Ok(json);
    }
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    let hint = match status.as_u16() {
        401 => ". Set WAYBILL_KEY to a key with the scope admin",
        _ => "",
    };
    Err(StartError::Command(format!("{}: {}{hint} ({status})", text("title"), text("detail"))))
}

fn failed(error: &dyn std::error::Error) -> StartError {
    StartError::Command(error.to_string())
}
