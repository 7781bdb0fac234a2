//! The client: one for the whole server, so that connections are used again.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Proxy, Response, Url, redirect};
use tokio::time::{Instant, timeout_at};

use crate::domain::address::AllowList;
use crate::domain::attempt::ErrorKind;

use super::excerpt::Excerpt;
use super::exchange::{Answer, Exchange, SendError, WebhookRequest};
use super::failure::classify;
use super::prepare::prepare;
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
        let proxy = settings.proxy.as_deref().map(proxy_at).transpose()?;
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
        let request = prepare(request, &self.allow)?;
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
}

/// A proxy for everything. The library would take other schemes, and speak HTTP to them.
fn proxy_at(url: &str) -> Result<Proxy, String> {
    let is_http = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let proxy = if is_http { Proxy::all(url).ok() } else { None };
    proxy.ok_or_else(|| "the proxy must be a URL such as http://proxy.internal:3128".to_owned())
}

fn answer_without_body(response: &Response) -> Answer {
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.filter(|value| value.len() <= RETRY_AFTER_CHARS);
    Answer { status: response.status().as_u16(), retry_after: retry_after.map(str::to_owned), excerpt: String::new() }
}

fn late(what: &str, timeout: Duration) -> SendError {
    SendError::new(ErrorKind::Timeout, &format!("{what} within {timeout:?}"))
}
