//! What is measured and logged about each request.
//!
//! Every request is measured. At `info`, only those are logged that somebody should look at: requests that the server
//! could not serve (5xx), and slow ones, a few of each kind in a window of time ([`crate::logging::limiter`]). A refused
//! request (4xx) is logged at `debug`, as all others: clients cause them at will, and could fill the disk. They are
//! counted by reason in `/metrics`, and those about keys are in the audit log.

use std::time::{Duration, Instant};

use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::web::Data;
use actix_web::{HttpMessage, HttpRequest};

use super::client_address::ClientAddress;
use super::code::Code;
use super::doors::Admitted;
use crate::engine::Engine;
use crate::logging::limiter::Kind;
use crate::metrics::http::EndpointIndex;

/// The time after which a request is slow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowRequests(pub Duration);

/// The endpoints of a path, with their places in the metrics. It belongs to the resource that serves the path.
#[derive(Debug, Clone)]
pub(crate) struct PathEndpoints {
    pub path: &'static str,
    pub endpoints: Vec<(Method, EndpointIndex)>,
}

impl PathEndpoints {
    fn find(&self, method: &Method) -> Option<EndpointIndex> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.endpoints.iter().find(|(known, _)| known == method).map(|(_, index)| *index)
    }
}

/// The time that a request may spend waiting for events. It is not slow for that.
#[derive(Debug, Clone, Copy)]
struct AllowedWait(Duration);

/// Records that a request may wait, so that it is not logged as slow.
pub(crate) fn allow_wait(request: &HttpRequest, wait: Duration) {
    if !wait.is_zero() {
        request.extensions_mut().insert(AllowedWait(wait));
    }
}

/// What is known of a request before it is handled.
pub(crate) struct RequestLog {
    started: Instant,
    /// The path, if all requests are logged.
    path: Option<String>,
}

impl RequestLog {
    pub(crate) fn begin(request: &ServiceRequest) -> Self {
        let path = log::log_enabled!(log::Level::Debug).then(|| logged_path(request));
        RequestLog { started: Instant::now(), path }
    }

    /// Measures and logs a request whose response begins.
    pub(crate) fn end<B>(self, response: &ServiceResponse<B>) {
        let (request, status) = (response.request(), response.status());
        let (took, code) = (self.started.elapsed(), response.response().extensions().get::<Code>().copied());
        let endpoints = request.app_data::<PathEndpoints>();
        if let Some(engine) = request.app_data::<Data<Engine>>() {
            let endpoint = endpoints.and_then(|endpoints| endpoints.find(request.method()));
            engine.metrics().requests.observe(endpoint, status.as_u16(), took.as_secs_f64());
            if let Some(code) = code {
                engine.metrics().count_refused_call(code.name());
            }
        }
        let (level, text) = match () {
            () if status.is_server_error() && Kind::FailedRequest.is_due() => (log::Level::Info, "a request failed"),
            () if is_slow(request, took) && Kind::SlowRequest.is_due() => (log::Level::Info, "a request was slow"),
            () if self.path.is_some() => (log::Level::Debug, "request"),
            () => return,
        };
        let admitted = request.extensions().get::<Admitted>().cloned();
        let principal = admitted.as_ref().map(Admitted::principal);
        log::log!(
            level,
            method = request.method().as_str(),
            route = endpoints.map_or("other", |endpoints| endpoints.path),
            path = self.path.as_deref().unwrap_or_default(),
            client:% = ClientAddress::of(request),
            status = status.as_u16(),
            code = code.map_or("", Code::name),
            ms = took.as_millis() as u64,
            key = principal.and_then(|principal| principal.name.as_deref()).unwrap_or_default(),
            namespace_id = principal.map(|principal| principal.namespace.0).unwrap_or_default();
            "{text}"
        );
    }
}

/// Returns whether a request took long, not counting the time that it asked to wait.
fn is_slow(request: &HttpRequest, took: Duration) -> bool {
    let Some(SlowRequests(limit)) = request.app_data::<SlowRequests>() else { return false };
    let wait = || request.extensions().get::<AllowedWait>().map_or(Duration::ZERO, |wait| wait.0);
    took >= *limit && took >= wait() + *limit
}

/// Returns the path of a request without what is secret in it: the token of a source. It is recognised in the path that
/// the router matches, with escapes decoded.
pub(crate) fn logged_path(request: &ServiceRequest) -> String {
    match request.match_info().as_str().strip_prefix("/in/") {
        Some(_) => "/in/…".to_owned(),
        None => request.path().to_owned(),
    }
}
