//! Requests to the collector: OTLP over HTTP, with protobuf bodies.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, redirect};
use url::Url;

use super::TraceSettings;
use super::otlp::{ExportTraceServiceRequest, ExportTraceServiceResponse, Resource};
use super::recorder::FinishedSpan;
use crate::webhook::tls_config;

/// The time within which the collector must have answered.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of bytes of an answer that are read.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// The maximum number of bytes of a message of the collector that are logged.
const MAX_MESSAGE_BYTES: usize = 300;

pub(super) struct Collector {
    http: reqwest::Client,
    url: Url,
    resource: Resource,
}

/// What a collector says about a batch that it took.
pub(super) struct Accepted {
    /// The number of spans that it did not take.
    pub(super) rejected: u64,
    pub(super) message: String,
}

/// Why a batch was not taken.
pub(super) struct Refusal {
    pub(super) cause: String,
    /// The time that the collector asks for before another try; `None` if there is no use in one.
    pub(super) retry: Option<Duration>,
}

impl Collector {
    pub(super) fn new(settings: &TraceSettings) -> Result<Self, String> {
        let url = url_of(&settings.endpoint).map_err(|why| format!("--otlp-endpoint: {why}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "the name of a header is not valid")?;
            let mut value = HeaderValue::from_str(value).map_err(|_| format!("the value of {name} is not valid"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let http = reqwest::Client::builder()
            // The collector is the one that is configured, whatever the environment or a response says.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            .user_agent(concat!("Waybill/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .tls_backend_preconfigured(tls_config(None)?)
            .timeout(EXPORT_TIMEOUT)
            .pool_max_idle_per_host(1)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Collector { http, url, resource: Resource::of_this_process() })
    }

    pub(super) fn encode(&self, spans: Vec<FinishedSpan>) -> Bytes {
        ExportTraceServiceRequest::of(&self.resource, spans).encode_to_vec().into()
    }

    /// Sends a batch once.
    pub(super) async fn send(&self, body: Bytes) -> Result<Accepted, Refusal> {
        let sending = self.http.post(self.url.clone()).body(body).send();
        // Without its URL, which may contain a password.
        let away = |error: reqwest::Error| Refusal {
            cause: format!("no answer: {}", causes(&error.without_url())),
            retry: Some(Duration::ZERO),
        };
        let response = sending.await.map_err(away)?;
        let (status, retry_after) = (response.status(), retry_after(&response));
        // An answer that breaks off is still an answer: the spans must not be sent twice.
        let answer = read(response).await;
        if status.is_success() {
            return Ok(accepted(&answer));
        }
        // These statuses ask to try again, and no others do.
        let may_retry = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        Err(Refusal {
            cause: format!("the collector answered {}", status.as_u16()),
            retry: may_retry.then(|| retry_after.unwrap_or_default()),
        })
    }
}

/// Returns the URL that spans are sent to.
fn url_of(endpoint: &str) -> Result<Url, String> {
    let mut url = Url::parse(endpoint).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("it must be an http or https URL".into());
    }
    let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// Returns an error with what caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    shortened(text)
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
    text
}

fn retry_after(response: &Response) -> Option<Duration> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn read(mut response: Response) -> Vec<u8> {
    let mut answer = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        let room = MAX_ANSWER_BYTES - answer.len();
        answer.extend_from_slice(&piece[..piece.len().min(room)]);
        if answer.len() == MAX_ANSWER_BYTES {
            break;
        }
    }
    answer
}

/// Reads what a collector has not taken. An answer that cannot be read counts as full acceptance: the status says so.
fn accepted(answer: &[u8]) -> Accepted {
    let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    let partial = partial.unwrap_or_default();
    Accepted {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or_default(),
        message: shortened(format!("the collector rejected spans: {}", partial.error_message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_to_the_endpoint() {
        for (endpoint, url) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("https://otel.example.com/", "https://otel.example.com/v1/traces"),
            ("https://example.com/otlp/", "https://example.com/otlp/v1/traces"),
        ] {
            assert_eq!(url_of(endpoint).unwrap().as_str(), url);
        }
        for endpoint in ["", "localhost:4318", "grpc://localhost:4317", "unix:/a"] {
            assert!(url_of(endpoint).is_err(), "{endpoint}");
        }
    }
}
