//! The HTTP client. The whole server shares one client to reuse connections.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Proxy, Response, Url, redirect};
use tokio::time::{Instant, timeout_at};

use crate::domain::address::AllowList;
use crate::domain::attempt::ErrorKind;

use super::excerpt::Excerpt;
use super::exchange::{Exchange, SendError, WebhookRequest, WebhookResponse};
use super::failure::classify;
use super::prepare::prepare;
use super::resolver::{GuardedResolver, Lookup, system_lookup};
use super::settings::WebhookSettings;
use super::trust::tls_config;

/// The number of idle connections that are kept per receiver.
const IDLE_CONNECTIONS: usize = 100;
/// The time that idle connections are kept. It is shorter than the keep-alive of most receivers, so few
/// connections turn out to be closed on reuse.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time to establish a connection, shared by all addresses of a name. Without this limit the first
/// address that does not respond would use up the whole deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest `Retry-After` value that is returned, in characters. A date has 29.
const RETRY_AFTER_CHARS: usize = 100;
/// The upper limit of the timeout of a request.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Sends webhooks. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    allow: Arc<AllowList>,
}

impl Client {
    /// Creates a client that resolves names with the operating system.
    pub fn new(settings: &WebhookSettings) -> Result<Self, String> {
        Self::with_lookup(settings, system_lookup())
    }

    /// Creates a client that resolves names with `lookup` and checks the resulting addresses.
    pub fn with_lookup(settings: &WebhookSettings, lookup: Lookup) -> Result<Self, String> {
        let allow = Arc::new(settings.allow.clone());
        let proxy = settings.proxy.as_deref().map(proxy_at).transpose()?;
        let guard = GuardedResolver { lookup, allow: proxy.is_none().then(|| allow.clone()) };
        let builder = reqwest::Client::builder()
            // Ignores proxy variables of the environment. Must precede `proxy`, which it would undo.
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
        let http = builder.build().map_err(|error| format!("cannot create the webhook client: {error}"))?;
        Ok(Self { http, allow })
    }

    /// Sends a request once, without retries. Dropping the future closes the connection.
    pub async fn send(&self, request: WebhookRequest) -> Exchange {
        let started_at = Instant::now();
        let deadline = started_at + request.timeout.min(LONGEST_TIMEOUT);
        let result = self.send_by(deadline, request).await;
        Exchange { duration: started_at.elapsed(), result }
    }

    async fn send_by(&self, deadline: Instant, request: WebhookRequest) -> Result<WebhookResponse, SendError> {
        let timeout = request.timeout;
        let mut excerpt = Excerpt::without(request.redacted.clone());
        let request = prepare(request, &self.allow)?;
        let is_https = request.url().scheme() == "https";
        let response = timeout_at(deadline, self.http.execute(request)).await;
        let response = response.map_err(|_| timed_out("no answer came", timeout))?;
        let response = response.map_err(|error| classify(&error, is_https))?;
        let mut received = without_body(&response);
        let read = timeout_at(deadline, excerpt.read(response)).await;
        received.excerpt = excerpt.into_text();
        match read {
            Ok(Ok(())) => Ok(received),
            // An error status counts even if its body is incomplete. A success counts only if the whole
            // response arrived, because the receiver may have failed half-way.
            _ if !received.is_success() => Ok(received),
            Ok(Err(error)) => Err(classify(&error, is_https)),
            Err(_) => Err(timed_out("the answer did not end", timeout)),
        }
    }
}

/// Returns a proxy for all requests. `reqwest` would accept other schemes and use HTTP for them, so only
/// `http` and `https` are allowed here.
fn proxy_at(url: &str) -> Result<Proxy, String> {
    let is_http = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let proxy = if is_http { Proxy::all(url).ok() } else { None };
    proxy.ok_or_else(|| "the proxy must be a URL such as http://proxy.internal:3128".to_owned())
}

fn without_body(response: &Response) -> WebhookResponse {
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.filter(|value| value.len() <= RETRY_AFTER_CHARS);
    WebhookResponse {
        status: response.status().as_u16(),
        retry_after: retry_after.map(str::to_owned),
        excerpt: String::new(),
    }
}

fn timed_out(what: &str, timeout: Duration) -> SendError {
    SendError::new(ErrorKind::Timeout, &format!("{what} within {timeout:?}"))
}
