//! The client: publishes events and works on them, over HTTP.
//!
//! - [`Client`] sends single requests. Whatever the server refuses is a [`Problem`], which says whether the same
//!   request may be sent again.
//! - [`Publisher`] publishes, and sends a request again if its answer is lost, so that every event is stored once.
//! - [`LogStream`] follows the event log, and goes on where it was when the server is back.
//! - [`Worker`] claims events, gives each to a [`Handler`], extends its lease while the handler runs, and settles it.
//!
//! ```no_run
//! use waybill::client::{Client, NewEvent};
//!
//! # async fn publish() -> Result<(), waybill::client::ClientError> {
//! let client = Client::new("http://127.0.0.1:8080", None)?;
//! let event = NewEvent::new("Resize a photo", ["images"]).payload(&serde_json::json!({"photo": 17}))?;
//! let published = client.publish(&event, Some("photo-17")).await?;
//! println!("event {} is {}", published.id, published.status);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/publish_and_work.rs` is a whole program, and docs/workers.md describes workers.

mod error;
mod event;
mod log_stream;
mod pause;
mod publisher;
mod server_sent;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Response};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use error::{ClientError, FieldError, Problem};
pub use event::{ClaimedEvent, NewEvent, PublishedEvent};
pub use log_stream::{LogFilter, LogSignal, LogStream};
pub(crate) use pause::Pause;
pub(crate) use publisher::LONGEST_PATIENCE;
pub use publisher::Publisher;
pub use worker::{Handler, Job, Outcome, StopReason, Worker, WorkerOptions};

/// The time that a request may take, unless it is one that waits.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server, and the key to call it with. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: Arc<str>,
    key: Option<Arc<str>>,
    namespace: Option<Arc<str>>,
}

impl Client {
    /// Returns a client for the server at `url`, with an API key if the server requires one.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let is_usable =
            url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_usable {
            return Err(ClientError::Settings(format!(
                "{url:?} is not the URL of a server, such as http://localhost:8080"
            )));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ClientError::Settings(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A proxy of the environment, which is meant for other destinations, must not see the key.
        let http = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls);
        let http = http.build().map_err(|error| ClientError::Settings(error.to_string()))?;
        Ok(Client { http, url: url.trim_end_matches('/').into(), key: key.map(Into::into), namespace: None })
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the client for another namespace than that of its key, which must be an administrator's.
    pub fn in_namespace(self, name: &str) -> Self {
        Client { namespace: Some(name.into()), ..self }
    }

    /// Publishes an event. With an idempotency key a repeated call stores nothing and returns the same event.
    pub async fn publish(
        &self,
        event: &NewEvent,
        idempotency_key: Option<&str>,
    ) -> Result<PublishedEvent, ClientError> {
        self.publish_as(event, idempotency_key).await
    }

    /// Publishes an event, and returns the answer in another form.
    async fn publish_as<T: DeserializeOwned>(
        &self,
        event: &NewEvent,
        idempotency_key: Option<&str>,
    ) -> Result<T, ClientError> {
        let mut request = self.request(Method::POST, "/events").body(to_json(event)?);
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        self.send(request.header("content-type", "application/json"), TIMEOUT).await
    }

    /// Publishes up to 1,000 events in one transaction: all or none. Each may have its own idempotency key.
    pub async fn publish_events(&self, events: &[NewEvent]) -> Result<Vec<PublishedEvent>, ClientError> {
        let body = to_json(&Batch { events })?;
        let receipts: Receipts = self.call(Method::POST, "/events/batch", Some(body)).await?;
        Ok(receipts.events)
    }

    /// Sends a request without a body.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.send(self.request(Method::GET, path), TIMEOUT).await
    }

    /// Sends a request with a JSON body, if there is one.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<T, ClientError> {
        self.call_within(TIMEOUT, method, path, body).await
    }

    async fn call_within<T: DeserializeOwned>(
        &self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<T, ClientError> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        self.send(request, timeout).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(namespace) = &self.namespace {
            request = request.header("waybill-namespace", &**namespace);
        }
        request
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        let response = request.timeout(timeout).send().await.map_err(|error| self.unreachable(&error))?;
        let refusal = Refusal::of(&response);
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        if let Some(refusal) = refusal {
            return Err(ClientError::Refused(Box::new(refusal.read(&body))));
        }
        // An answer without a body is `null`.
        let body = if body.is_empty() { b"null".as_slice() } else { &body };
        serde_json::from_slice(body).map_err(|error| ClientError::Unreadable(error.to_string()))
    }

    /// Returns the error of a server that was sent a request and does not answer.
    fn silent(&self) -> ClientError {
        ClientError::Unreachable { url: self.url.to_string(), cause: "it is silent".to_owned(), was_sent: true }
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        let was_sent = !error.is_connect();
        ClientError::Unreachable { url: self.url.to_string(), cause: cause_of(error), was_sent }
    }
}

#[derive(Serialize)]
struct Batch<'a> {
    events: &'a [NewEvent],
}

#[derive(Deserialize)]
struct Receipts {
    events: Vec<PublishedEvent>,
}

/// A response that is no success.
struct Refusal {
    status: u16,
    retry_after: Option<Duration>,
}

impl Refusal {
    fn of(response: &Response) -> Option<Self> {
        let status = response.status();
        let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        (!status.is_success())
            .then(|| Refusal { status: status.as_u16(), retry_after: seconds.map(Duration::from_secs) })
    }

    fn read(self, body: &[u8]) -> Problem {
        Problem::read(self.status, self.retry_after, body)
    }
}

pub(crate) fn to_json(body: &impl Serialize) -> Result<String, ClientError> {
    serde_json::to_string(body).map_err(|error| ClientError::Settings(error.to_string()))
}

/// Returns an idempotency key that nobody else uses.
pub(crate) fn random_key() -> String {
    let part = || getrandom::u64().unwrap_or_default();
    format!("{:016x}{:016x}", part(), part())
}

/// Returns the innermost cause of an error, which says most: "Connection refused".
fn cause_of(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
