//! TRANSLATION: from HTTP to the engine and back. Handlers parse, call and shape.
//!
//! [`routes`] lists every endpoint on one page. `openapi.yaml` describes the same endpoints, and a
//! test checks that neither has one that the other lacks.

pub(crate) mod body;
pub(crate) mod browser;
pub mod claim_body;
pub(crate) mod claims;
pub(crate) mod client_socket;
pub mod code;
pub(crate) mod connection;
pub(crate) mod cursor;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub mod docs;
pub(crate) mod events;
pub(crate) mod framing;
pub(crate) mod health;
pub(crate) mod if_match;
pub(crate) mod logs;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod new_event;
pub(crate) mod openapi_json;
pub(crate) mod operate;
pub(crate) mod operations;
pub mod problem;
pub(crate) mod problem_pages;
pub(crate) mod query;
pub(crate) mod request_id;
pub(crate) mod scope;
pub(crate) mod sent_claims;
pub(crate) mod server;
pub(crate) mod settle;
pub(crate) mod sliced_body;
pub(crate) mod subscriptions;
pub(crate) mod tags;
pub(crate) mod tcp_info;
pub(crate) mod view;
pub(crate) mod work;
pub(crate) mod workers;

use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::{FromRequest, Handler, HttpRequest, HttpResponse, Responder, Route, guard, web};
use futures_util::FutureExt;

use crate::error::{Error, OutageKind};
use code::Code;
use problem::{Problem, respond_to_repeatable};

/// The time after which a read fails, even if the database hangs. Writes have their own timeouts, in
/// the engine.
const READ_TIMEOUT: Duration = Duration::from_millis(4_700);

/// All supported methods, as listed in the response to `OPTIONS *`.
const ALL_METHODS: &str = "GET, HEAD, POST, PATCH, DELETE, OPTIONS";

/// One method of one path.
pub struct Endpoint {
    pub method: Method,
    /// The path pattern, with `{id}` for an id.
    pub path: &'static str,
    /// Whether `HEAD` is supported as well.
    pub has_head: bool,
    route: Route,
}

/// Returns all endpoints. Fixed paths come before paths with an id. The router tries paths with an
/// id one after the other, so the most frequently requested ones come first.
pub fn routes() -> Vec<Endpoint> {
    vec![
        post("/events", events::publish_event),
        read("/events", events::list_events),
        post("/events/batch", events::publish_events),
        get_with_effect("/events/subscribe", repeatable(claims::claim_event)),
        repeatable_post("/events/claim", claims::claim_events),
        post("/events/settle", settle::settle_events),
        post("/events/reset", operations::reset_events),
        post("/events/retry", operations::retry_events),
        post("/events/cancel", operations::cancel_events),
        post("/events/{id}/complete", work::complete_event),
        post("/events/{id}/heartbeat", work::send_heartbeat),
        post("/events/{id}/start", work::start_event),
        post("/events/{id}/fail", work::fail_event),
        read("/events/{id}", events::get_event),
        post("/events/{id}/release", work::release_event),
        post("/events/{id}/reset", operate::reset_event),
        post("/events/{id}/retry", operate::retry_event),
        repeatable_post("/events/{id}/cancel", operate::cancel_event),
        post("/subscriptions", subscriptions::create_subscription),
        read("/subscriptions", subscriptions::list_subscriptions),
        read("/subscriptions/{id}", subscriptions::get_subscription),
        patch("/subscriptions/{id}", subscriptions::update_subscription),
        delete("/subscriptions/{id}", repeatable(subscriptions::delete_subscription)),
        post("/subscriptions/{id}/rotate-secret", subscriptions::rotate_subscription_secret),
        post("/subscriptions/{id}/test", subscriptions::test_subscription),
        repeatable_post("/subscriptions/{id}/resume", subscriptions::resume_subscription),
        read("/deliveries", deliveries::list_deliveries),
        post("/deliveries/retry", operations::retry_deliveries),
        post("/deliveries/cancel", operations::cancel_deliveries),
        read("/deliveries/{id}", deliveries::get_delivery),
        post("/deliveries/{id}/retry", deliveries::retry_delivery),
        repeatable_post("/deliveries/{id}/cancel", deliveries::cancel_delivery),
        post("/deliveries/{id}/dead-letter", deliveries::dead_letter_delivery),
        read("/dead-letters", dead_letters::list_dead_letters),
        post("/dead-letters/replay", operations::replay_dead_letters),
        read("/dead-letters/{id}", dead_letters::get_dead_letter),
        post("/dead-letters/{id}/replay", dead_letters::replay_dead_letter),
        read("/operations", operations::list_operations),
        read("/operations/{id}", operations::get_operation),
        repeatable_post("/operations/{id}/cancel", operations::cancel_operation),
        read("/logs", logs::list_log_entries),
        read("/workers", workers::list_workers),
        read("/tags", tags::list_tags),
        read("/metrics", metrics::get_metrics),
        get("/health", health::get_health),
        read("/ready", health::get_readiness),
        get("/problems/{code}", problem_pages::get_problem_page),
        get("/", docs::get_root),
        get("/openapi.yaml", docs::get_openapi_yaml),
        get("/openapi.json", docs::get_openapi_json),
        get("/docs", docs::get_docs),
        get("/docs/scalar.js", docs::get_docs_script),
    ]
}

fn configure(config: &mut web::ServiceConfig) {
    let mut endpoints = routes();
    while let Some(path) = endpoints.first().map(|endpoint| endpoint.path) {
        let (same_path, others): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(|endpoint| endpoint.path == path);
        let allow = allowed_methods(&same_path);
        let resource =
            same_path.into_iter().fold(web::resource(path), |resource, endpoint| resource.route(endpoint.route));
        let other_method = move |request: HttpRequest| other_method(request, allow.clone());
        config.service(resource.default_service(web::to(other_method)));
        endpoints = others;
    }
}

/// Returns the value of `Allow` for a path with these endpoints.
fn allowed_methods(endpoints: &[Endpoint]) -> String {
    let mut methods = Vec::new();
    for endpoint in endpoints {
        methods.push(endpoint.method.as_str());
        methods.extend(endpoint.has_head.then_some("HEAD"));
    }
    methods.push("OPTIONS");
    methods.join(", ")
}

fn endpoint<F, Args>(method: Method, path: &'static str, handler: F) -> Endpoint
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    Endpoint { route: web::method(method.clone()).to(handler), method, path, has_head: false }
}

/// Returns an endpoint for `GET` and `HEAD`. For `HEAD` the server omits the body.
fn get<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    handler: F,
) -> Endpoint {
    let either = guard::fn_guard(|context| matches!(context.head().method, Method::GET | Method::HEAD));
    Endpoint { route: web::route().guard(either).to(handler), method: Method::GET, path, has_head: true }
}

/// Returns an endpoint for a `GET` that changes something, and therefore must not serve `HEAD`.
fn get_with_effect<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    handler: F,
) -> Endpoint {
    endpoint(Method::GET, path, handler)
}

fn post<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    handler: F,
) -> Endpoint {
    endpoint(Method::POST, path, handler)
}

/// Returns an endpoint for a `POST` that has the same effect if it is sent twice: a client whose response
/// says that the outcome is unknown may send it again.
fn repeatable_post<F, Args>(path: &'static str, handler: F) -> Endpoint
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    endpoint(Method::POST, path, repeatable(handler))
}

fn repeatable<F, Args>(handler: F) -> impl Handler<(Args,), Output = HttpResponse>
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    // Not an `async` block, which would hold the future of the handler twice: thousands of them wait.
    move |args: Args| handler.call(args).map(|response| response.unwrap_or_else(respond_to_repeatable))
}

fn patch<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    handler: F,
) -> Endpoint {
    endpoint(Method::PATCH, path, handler)
}

fn delete<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    handler: F,
) -> Endpoint {
    endpoint(Method::DELETE, path, handler)
}

/// Returns an endpoint for a `GET` that reads the database and waits for nothing else.
fn read<F, Args>(path: &'static str, handler: F) -> Endpoint
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    get(path, move |args: Args| {
        let response = tokio::time::timeout(READ_TIMEOUT, handler.call(args));
        async move { response.await.unwrap_or_else(|_| Err(Error::outage(OutageKind::TooSlow, "a read took too long"))) }
    })
}

async fn no_such_path(request: HttpRequest) -> HttpResponse {
    // `OPTIONS *` is about the server as a whole (RFC 9110, 9.3.7).
    if request.method() == Method::OPTIONS && request.path() == "*" {
        return options(ALL_METHODS.into());
    }
    Problem::new(Code::RouteNotFound, format!("there is no {}", request.path())).respond()
}

async fn other_method(request: HttpRequest, allow: String) -> HttpResponse {
    if request.method() == Method::OPTIONS {
        return options(allow);
    }
    let mut response = Problem::new(Code::MethodNotAllowed, format!("allowed here: {allow}")).respond();
    if let Ok(value) = header::HeaderValue::from_str(&allow) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

/// Responds to `OPTIONS`. Without CORS headers, a browser does not let pages of other origins send
/// requests that need a preflight.
fn options(allow: String) -> HttpResponse {
    HttpResponse::NoContent().insert_header((header::ALLOW, allow)).finish()
}
