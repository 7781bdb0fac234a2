//! The client: one for the whole server, so that connections are used again.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Proxy, Response, Url, redirect};
use tokio::time::{Instant, timeout_at};

use crate::domain::address::{self, AllowList};
use crate::domain::attempt::ErrorKind;

use super::excerpt::Excerpt;
use super::exchange::{Answer, Exchange, SendError, WebhookRequest};
use super::failure::classify;
use super::resolver::{GuardedResolver, Lookup, system_lookup};
use super::settings::WebhookSettings;
use super::trust::tls_config;

/// Idle connections that are kept per receiver, for the next request.
const IDLE_CONNECTIONS: usize = 100;
/// How long they are kept: less than most receivers keep theirs, so that few are found closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long making a connection may take, shared by the addresses of a name. Without it the
/// first address that does not answer would use up the whole deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a `Retry-After` that is handed out. A date has 29.
const RETRY_AFTER_CHARS: usize = 100;
/// The longest that a request may take.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// Headers that frame the message or steer the connection; they are not for callers to set.
const FRAMING: &[&str] =
    &["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Sends webhooks. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    allow: Arc<AllowList>,
}

impl Client {
    /// A client that asks the system for the addresses of names.
    pub fn new(settings: &WebhookSettings) -> Result<Self, String> {
        Self::with_lookup(settings, system_lookup())
    }

    /// A client that asks `lookup` for the addresses of names, and judges what it says.
    pub fn with_lookup(settings: &WebhookSettings, lookup: Lookup) -> Result<Self, String> {
        let allow = Arc::new(settings.allow.clone());
        let proxy = settings.proxy.as_deref().map(Proxy::all).transpose();
        let proxy = proxy.map_err(|_| "the proxy must be a URL such as http://proxy.internal:3128")?;
        let guard = GuardedResolver { lookup, allow: proxy.is_none().then(|| allow.clone()) };
        let builder = reqwest::Client::builder()
            // Before `proxy`, which it would undo: the environment has no say.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .http1_only()
            .user_agent(&settings.user_agent)
            .dns_resolver(guard)
            .tls_backend_preconfigured(tls_config(settings.ca_file.as_deref())?)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIMEOUT);
        let builder = proxy.into_iter().fold(builder, reqwest::ClientBuilder::proxy);
        let http = builder.build().map_err(|error| format!("the client of webhooks: {error}"))?;
        Ok(Self { http, allow })
    }

    /// Sends one request, once. Dropping the future hangs up.
    pub async fn send(&self, request: WebhookRequest) -> Exchange {
        let started_at = Instant::now();
        let deadline = started_at + request.timeout.min(LONGEST_TIMEOUT);
        let result = self.send_by(deadline, request).await;
        Exchange { duration: started_at.elapsed(), result }
    }

    async fn send_by(&self, deadline: Instant, request: WebhookRequest) -> Result<Answer, SendError> {
        let timeout = request.timeout;
        let request = self.prepare(request)?;
        let is_https = request.url().scheme() == "https";
        let response = timeout_at(deadline, self.http.execute(request)).await;
        let response = response.map_err(|_| late("no answer came", timeout))?;
        let response = response.map_err(|error| classify(&error, is_https))?;
        let mut answer = answer_without_body(&response);
        let mut excerpt = Excerpt::default();
        let read = timeout_at(deadline, excerpt.read(response)).await;
        answer.excerpt = excerpt.into_text();
        match read {
            Ok(Ok(())) => Ok(answer),
            // A refusal is one, however its explanation ended. A success is one only when the
            // receiver got to its end.
            _ if !answer.is_success() => Ok(answer),
            Ok(Err(error)) => Err(classify(&error, is_https)),
            Err(_) => Err(late("the answer did not end", timeout)),
        }
    }

    /// Checks the request and puts it into the library's terms.
    fn prepare(&self, request: WebhookRequest) -> Result<reqwest::Request, SendError> {
        let refused = |why: String| SendError::new(ErrorKind::AddressRefused, &format!("the URL {why}"));
        address::check_url(&request.url, &self.allow).map_err(refused)?;
        let url = Url::parse(&request.url).map_err(|why| refused(format!("is none: {why}")))?;
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| SendError::new(ErrorKind::BodyNotRenderable, "the method is not one of HTTP"))?;
        let mut prepared = reqwest::Request::new(method, url);
        *prepared.headers_mut() = headers(&request.headers)?;
        *prepared.body_mut() = Some(request.body.into());
        Ok(prepared)
    }
}

fn headers(headers: &[(String, String)]) -> Result<HeaderMap, SendError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let wrong = |why| SendError::new(ErrorKind::BodyNotRenderable, &format!("the header {name} {why}"));
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("has a name that HTTP forbids"))?;
        if FRAMING.contains(&known.as_str()) {
            return Err(wrong("is not for callers to set"));
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong("has a value that HTTP forbids"))?;
        map.append(known, value);
    }
    Ok(map)
}

fn answer_without_body(response: &Response) -> Answer {
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.filter(|value| value.len() <= RETRY_AFTER_CHARS);
    Answer { status: response.status().as_u16(), retry_after: retry_after.map(str::to_owned), excerpt: String::new() }
}

fn late(what: &str, timeout: Duration) -> SendError {
    SendError::new(ErrorKind::Timeout, &format!("{what} within {timeout:?}"))
}
